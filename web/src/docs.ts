// The API explorer: Redoc on this server's own description, with nothing from elsewhere.
import redocUrl from "redoc/bundles/redoc.standalone.js?url";

interface Redoc {
  init(url: string, options: object, element: Element | null): void;
}
declare global {
  interface Window {
    Redoc: Redoc;
  }
}

const script = document.createElement("script");
script.src = redocUrl;
script.onload = () =>
  window.Redoc.init(
    "./openapi.json",
    {
      disableSearch: true,
      nativeScrollbars: true,
      theme: { typography: { fontFamily: "system-ui, sans-serif", headings: { fontFamily: "system-ui, sans-serif" } } },
    },
    document.getElementById("docs"),
  );
document.head.append(script);
