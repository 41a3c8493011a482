// Lays out a small directed graph in layers, for workflows.
export interface GraphNode {
  after: number[];
}
export interface Place {
  x: number;
  y: number;
}
const WIDTH = 210;
const HEIGHT = 58;
const NODE_WIDTH = 170;
const NODE_HEIGHT = 44;

/** Returns the place of each node, and the size of the whole. A node is right of all it waits for. */
export function layOut(nodes: GraphNode[]): { places: Place[]; width: number; height: number } {
  const layers: number[] = [];
  const layerOf = (index: number, trail: number): number => {
    if (layers[index] !== undefined) return layers[index];
    if (trail > nodes.length) return 0;
    const found = Math.max(-1, ...(nodes[index]?.after ?? []).map((each) => layerOf(each, trail + 1))) + 1;
    layers[index] = found;
    return found;
  };
  nodes.forEach((_, index) => layerOf(index, 0));
  const filled: number[] = [];
  const places = nodes.map((_, index) => {
    const layer = layers[index] ?? 0;
    const row = (filled[layer] = (filled[layer] ?? -1) + 1);
    return { x: layer * WIDTH, y: row * HEIGHT };
  });
  return { places, width: Math.max(0, ...layers) * WIDTH + NODE_WIDTH, height: Math.max(0, ...filled.map((each) => each ?? 0)) * HEIGHT + NODE_HEIGHT };
}
