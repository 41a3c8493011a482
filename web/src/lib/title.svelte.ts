// What the heading shows after the name of the page.
class Title {
  detail = $state("");
  mono = $state(false);
}
export const title = new Title();

/** Call while a page is made. */
export function useTitle(detail: () => string, mono = false): void {
  $effect(() => {
    title.detail = detail();
    title.mono = mono;
    return () => {
      title.detail = "";
    };
  });
}
