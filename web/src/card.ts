// The card of a node: what the report knows of it, wherever that stands. It opens by #node=NAME.
import { readTable, textOf } from "./cells";
import { DIALECTS, type Dialect } from "./dialects";
import { type Spoken, current, onChange, remember, remembered, say } from "./language";
import { type NetworkSpec, type NodeSpec, boxOf, mark, neighbours } from "./network";
import { word, wordElement } from "./words";

export function nodeInAddress(hash: string): string | null {
  const found = /^#node=(.*)$/s.exec(hash);
  if (!found) return null;
  try {
    return decodeURIComponent(found[1] ?? "");
  } catch {
    return found[1] ?? "";
  }
}

export function setUpCards(networks: NetworkSpec[]): void {
  const nodes = new Map<string, NodeSpec>();
  for (const network of networks) for (const node of network.nodes) nodes.set(node.name, node);
  const panel = document.querySelector<HTMLElement>(".network .panel");
  if (panel) setUpPanel(panel, networks, nodes);
  else setUpDialog(nodes);
}

/** Beside the graph: nothing is hidden by it. */
function setUpPanel(panel: HTMLElement, networks: NetworkSpec[], nodes: Map<string, NodeSpec>): void {
  const empty = [...panel.childNodes];
  // Until something is chosen the first culprit stands there.
  const accused = nodeInAddress(document.querySelector<HTMLAnchorElement>(".culprit a.chip")?.hash ?? "");
  const show = (): void => {
    const chosen = nodeInAddress(location.hash), name = chosen ?? accused;
    mark(networks, chosen);
    if (name === null) {
      panel.replaceChildren(...empty);
      return;
    }
    const box = boxOf(networks, name);
    const parts = content(name, nodes.get(name), (box?.members ?? []).map((each) => nodes.get(each)).filter((each) => each !== undefined));
    panel.replaceChildren(...parts, ...(box ? around(box.spec, box.members) : []));
    panel.scrollTop = 0;
    if (chosen !== null) panel.closest(".network")?.scrollIntoView({ block: "nearest" });
  };
  addEventListener("hashchange", show);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && nodeInAddress(location.hash) !== null) location.hash = "#";
  });
  onChange(show);
  show();
}

/** Where a report has no graph. */
function setUpDialog(nodes: Map<string, NodeSpec>): void {
  const dialog = document.createElement("dialog");
  dialog.className = "card";
  dialog.setAttribute("aria-labelledby", "card-title");
  document.body.append(dialog);
  dialog.addEventListener("close", () => {
    if (nodeInAddress(location.hash) !== null) history.pushState(null, "", location.pathname + location.search + "#");
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  const show = (): void => {
    const name = nodeInAddress(location.hash);
    if (name === null) {
      dialog.close();
      return;
    }
    dialog.replaceChildren(closer(dialog), ...content(name, nodes.get(name), []));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  };
  addEventListener("hashchange", show);
  onChange(() => dialog.open && show());
  show();
}

function closer(dialog: HTMLDialogElement): HTMLElement {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "close";
  button.append(wordElement("close"));
  button.addEventListener("click", () => dialog.close());
  return button;
}

function content(name: string, node: NodeSpec | undefined, members: NodeSpec[]): HTMLElement[] {
  const title = document.createElement("h2");
  title.id = "card-title";
  title.textContent = name;
  const rows = tableRows(name);
  if (!node && !rows.length) {
    const nothing = document.createElement("p");
    nothing.textContent = word("unknownNode", current());
    return [title, nothing];
  }
  return [title, ...evidence(name), ...others(name, members), ...rows, ...(node ? [facts(node)] : []), ...selectors(name)];
}

/** The picture of what it is accused of, as it stands beside the cause. */
function evidence(name: string): HTMLElement[] {
  for (const drawn of document.querySelectorAll<HTMLElement>("figure.drawing[data-node]"))
    if (drawn.dataset.node === name) return [drawn.cloneNode(true) as HTMLElement];
  return [];
}

function linkTo(name: string): HTMLAnchorElement {
  const link = document.createElement("a");
  link.href = `#node=${encodeURIComponent(name)}`;
  link.textContent = name;
  return link;
}

/** What a folded block or unit is made of, in the order it runs, each with its number. */
function others(name: string, members: NodeSpec[]): HTMLElement[] {
  if (members.length < 2) return [];
  const list = document.createElement("details");
  list.open = members.filter((each) => each.value !== null).length > 1;
  const summary = document.createElement("summary");
  summary.textContent = word("together", current(), { n: members.length });
  const table = document.createElement("table");
  table.className = "members";
  for (const each of members) {
    const row = table.insertRow();
    row.insertCell().append(each.name === name ? each.name : linkTo(each.name));
    row.insertCell().textContent = each.op;
    row.insertCell().textContent = each.value === null ? "" : Number(each.value).toFixed(1).replace("-", "\u2212");
  }
  list.append(summary, table);
  return [list];
}

/** Who is read, and who reads it. */
function around(spec: NetworkSpec, members: string[]): HTMLElement[] {
  const { before, after } = neighbours(spec, members);
  const lines: HTMLElement[] = [];
  for (const [key, found] of [["input", before], ["output", after]] as const) {
    if (!found.length) continue;
    const line = document.createElement("p");
    line.className = "around";
    line.append(word(key, current()), " ");
    for (const each of found.slice(0, 6)) line.append(linkTo(each), " ");
    lines.push(line);
  }
  return lines;
}

function facts(node: NodeSpec): HTMLElement {
  const list = document.createElement("dl");
  const add = (term: string, text: string): void => {
    const [left, right] = [document.createElement("dt"), document.createElement("dd")];
    left.textContent = term;
    right.textContent = text;
    list.append(left, right);
  };
  const spoken = (text: Spoken): string => say(text, current());
  add(word("operation", current()), node.op);
  add(word("inputs", current()), node.inputs.join(", "));
  add(word("outputs", current()), node.outputs.join(", "));
  for (const [term, text] of node.facts) add(spoken(term), spoken(text));
  return list;
}

/** For each table that has rows of the node: its caption, and the row as words and values. */
function tableRows(name: string): HTMLElement[] {
  const found: HTMLElement[] = [];
  for (const table of document.querySelectorAll<HTMLTableElement>("main table[id]")) {
    const data = readTable(table);
    const at = data.columns.findIndex((column) => column.kind === "node");
    if (at < 0) continue;
    for (const row of data.rows) {
      const cell = row.cells[at];
      if (!cell || textOf(cell) !== name) continue;
      const heading = document.createElement("h3");
      heading.textContent = data.caption;
      const list = document.createElement("dl");
      data.columns.forEach((column, place) => {
        const own = row.cells[place];
        const text = own ? textOf(own) : "";
        if (place === at || !text) return;
        const [term, value] = [document.createElement("dt"), document.createElement("dd")];
        term.textContent = column.label;
        value.textContent = text;
        list.append(term, value);
      });
      found.push(heading, list);
    }
  }
  return found;
}

function selectors(name: string): HTMLElement[] {
  const label = document.createElement("label");
  label.append(wordElement("selector"));
  const choice = document.createElement("select");
  for (const dialect of DIALECTS) {
    const option = document.createElement("option");
    option.textContent = dialect.name;
    choice.append(option);
  }
  label.append(choice);
  const text = document.createElement("pre");
  text.className = "selector";
  const write = (): void => {
    text.textContent = DIALECTS[choice.selectedIndex]?.write([name]) ?? "";
  };
  choice.addEventListener("change", write);
  write();
  const button = document.createElement("button");
  button.type = "button";
  button.append(wordElement("copy"));
  button.addEventListener("click", () => {
    void copy(text).then((done) => done && button.replaceChildren(wordElement("copied")));
  });
  const place = document.createElement("div");
  place.className = "dialects";
  place.append(label, text, button);
  return [place];
}

/** What a cause needs, written for the tool of the chip, or for the one that was chosen last. */
export function setUpSettings(): void {
  for (const lines of document.querySelectorAll<HTMLElement>("pre.settings-of")) {
    const own = lines.textContent ?? "";
    const nodes = JSON.parse(lines.dataset.nodes ?? "[]") as string[];
    const chip = lines.dataset.chip ?? "";
    const tabs = document.createElement("span");
    tabs.className = "views";
    const buttons = DIALECTS.map((dialect) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = dialect.name;
      button.addEventListener("click", () => {
        remember("tool", dialect.name);
        show(dialect);
      });
      tabs.append(button);
      return button;
    });
    const show = (wanted: Dialect): void => {
      DIALECTS.forEach((each, at) => buttons[at]?.setAttribute("aria-pressed", String(each === wanted)));
      lines.textContent = wanted === DIALECTS[0] ? own : wanted.write(nodes);
    };
    show(DIALECTS.find((each) => each.name === remembered("tool")) ?? DIALECTS.find((each) => each.chips?.test(chip)) ?? (DIALECTS[0] as Dialect));
    lines.before(tabs);
  }
}

/** A button for each block of lines that are meant to be typed. */
export function setUpCopying(): void {
  for (const lines of document.querySelectorAll<HTMLElement>("pre.commands")) {
    const place = document.createElement("div");
    place.className = "copying";
    const button = document.createElement("button");
    button.type = "button";
    button.append(wordElement("copy"));
    button.addEventListener("click", () => {
      void copy(lines).then((done) => done && button.replaceChildren(wordElement("copied")));
    });
    lines.replaceWith(place);
    place.append(lines, button);
  }
}

/** Files opened from a disk may not write the clipboard; the text is selected then. */
async function copy(element: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(element.textContent ?? "");
    return true;
  } catch {
    getSelection()?.selectAllChildren(element);
    return false;
  }
}
