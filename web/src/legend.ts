// What the colours of a network mean: the scale from the best value to the worst.
import { SHADES } from "./colours";
import { current, onChange } from "./language";
import { word } from "./words";

const SVG = "http://www.w3.org/2000/svg";

/** Nothing where no node has a value. */
export function legendOf([low, high]: readonly [number, number], kind: string, higherIsBetter: boolean): HTMLElement[] {
  if (!(low <= high)) return [];
  const ends = (higherIsBetter ? [high, low] : [low, high]).map((value) => endText(value, kind));
  const [best, worst] = kind === "decibels" ? ["\u2265 40 dB", "< 0 dB"] : ends;
  const legend = document.createElement("div");
  legend.className = "legend";
  const show = (): void => legend.replaceChildren(part(best), steps(), part(worst), part(word("noValue", current())));
  show();
  onChange(show);
  return [legend];
}

function part(text = ""): HTMLElement {
  const element = document.createElement("span");
  element.textContent = text;
  return element;
}

function steps(): SVGElement {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.classList.add("steps");
  drawing.setAttribute("aria-hidden", "true");
  for (let at = 0; at < SHADES; at++) {
    const step = document.createElementNS(SVG, "rect");
    step.setAttribute("x", `${(100 * at) / SHADES}%`);
    step.setAttribute("width", `${100 / SHADES}%`);
    step.setAttribute("height", "100%");
    step.classList.add(`h${at}`);
    drawing.append(step);
  }
  return drawing;
}

export function endText(value: number, kind: string): string {
  if (kind === "share") return `${Number((100 * value).toPrecision(3))} %`;
  return `${Number(value.toPrecision(3))}${kind === "decibels" ? " dB" : ""}`;
}
