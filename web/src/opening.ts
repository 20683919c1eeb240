// Folded blocks open where they stand: their boxes on a sheet over the graph, closed by a click or Escape.
import { type NetworkSpec, type OpenedSpec } from "./network";
import { current } from "./language";
import { word } from "./words";

const WIDE = 156, TALL = 44, HEAD = 22;

export function setUpOpening(figure: HTMLElement, spec: NetworkSpec): void {
  const graph = figure.querySelector<SVGSVGElement>("svg.graph:not(.minimap)");
  if (!graph) return;
  let open: { box: string; sheet: SVGElement } | null = null;
  const close = (): void => {
    open?.sheet.remove();
    open = null;
  };
  for (const box of graph.querySelectorAll<SVGElement>("a.box")) {
    const number = box.dataset.box ?? "", inside = spec.opened[number];
    if (!inside) continue;
    box.setAttribute("aria-expanded", "false");
    box.addEventListener("click", () => {
      const again = open?.box === number;
      close();
      box.setAttribute("aria-expanded", String(!again));
      if (again) return;
      const sheet = drawn(graph, box, inside);
      graph.append(sheet);
      open = { box: number, sheet };
    });
  }
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "e" && !(event.target instanceof HTMLInputElement)) graph.querySelector<SVGElement>("a.box.selected[aria-expanded]")?.dispatchEvent(new MouseEvent("click"));
  });
  graph.addEventListener("click", (event) => {
    if (open && event.target === graph) close();
  });
}

function element(name: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text) made.textContent = text;
  return made;
}

/** The boxes of a block, as near to where it stands as they fit. */
function drawn(graph: SVGSVGElement, box: SVGElement, inside: OpenedSpec): SVGElement {
  const [wide, inner] = inside.size, tall = inner + HEAD;
  const room = graph.viewBox.baseVal, whole = { w: graph.width.baseVal.value || room.width, h: graph.height.baseVal.value || room.height };
  const own = /translate\(([-\d.]+) ([-\d.]+)\)/.exec(box.getAttribute("transform") ?? "");
  const scale = Math.min(1, room.width / wide, room.height / tall, whole.w / wide, whole.h / tall);
  const x = Math.max(room.x, Math.min(Number(own?.[1] ?? 0) + WIDE / 2, room.x + room.width - wide * scale));
  const y = Math.max(room.y, Math.min(Number(own?.[2] ?? 0) + TALL / 2, room.y + room.height - tall * scale));
  const sheet = element("g", { class: "opened", transform: `translate(${x} ${y}) scale(${scale})` });
  sheet.append(element("rect", { class: "paper", width: wide, height: tall, rx: 9 }));
  const name = box.querySelector(`.name:not([lang]), .name[lang="${current()}"]`)?.textContent ?? box.querySelector(".name")?.textContent ?? "";
  sheet.append(element("text", { class: "open", x: 14, y: 18 }, `${name} \u00b7 ${word("closeBlock", current())}`));
  const group = element("g", { transform: `translate(0 ${HEAD - 8})` });
  group.append(element("path", { class: "edge", d: inside.edges }));
  for (const [left, top, label, text, shade, detail, mark, node] of inside.boxes) {
    const part = element("a", { class: `box ${mark}${shade === null ? "" : ` f${shade}`}`, href: `#node=${encodeURIComponent(node)}`, "data-node": node, transform: `translate(${left} ${top})` });
    part.append(element("rect", { width: WIDE, height: TALL, rx: 7 }), element("text", { class: "name", x: 9, y: 18 }, label));
    part.append(element("text", { class: "value", x: WIDE - 9, y: 18 }, text), element("text", { class: "small", x: 9, y: 34 }, detail));
    part.append(element("title", {}, node));
    group.append(part);
  }
  sheet.append(group);
  return sheet;
}
