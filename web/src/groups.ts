// Large networks are shown by module: nodes whose names share a scope become one box that can be opened.
import type { Box } from "./layout";

export interface Grouped extends Box {
  /** Names of the nodes inside; one for a node that stands alone. */
  members: string[];
  label: string;
}

/** The scopes of a name, from the outermost: a/b/conv has a and a/b. Dots separate them where there are no slashes. */
export function scopesOf(name: string): string[] {
  const separator = name.includes("/") ? "/" : ".";
  const parts = name.split(separator);
  const found: string[] = [];
  for (let at = 1; at < parts.length; at++) {
    const scope = parts.slice(0, at).join(separator);
    if (scope.replaceAll("/", "")) found.push(scope);
  }
  return found;
}

/**
 * Boxes of a network in which some scopes are closed.
 *
 * A scope becomes one box only where its nodes follow each other, so that no edge turns back; otherwise each run of
 * them is a box of its own.
 */
export function grouped(nodes: readonly Box[], isClosed: (scope: string) => boolean): Grouped[] {
  const result: Grouped[] = [];
  let open: Grouped | null = null;
  let scope = "";
  for (const node of nodes) {
    const own = scopesOf(node.id).find(isClosed) ?? "";
    if (own && open && own === scope) {
      open.members.push(node.id);
      open.inputs = [...open.inputs, ...node.inputs];
      open.outputs = [...open.outputs, ...node.outputs];
      continue;
    }
    scope = own;
    open = { id: own ? `${own}\u0000${result.length}` : node.id, inputs: node.inputs, outputs: node.outputs, members: [node.id], label: own || node.id };
    result.push(open);
  }
  // A group of one is that node.
  return result.map((box) => (box.members.length > 1 ? box : { ...box, id: box.members[0] ?? box.id, label: box.members[0] ?? box.label }));
}

/** The scopes to close at first: the outermost ones that leave few enough boxes, or all of them. */
export function closedAtFirst(nodes: readonly Box[], most: number): Set<string> {
  if (nodes.length <= most) return new Set();
  const byDepth: Set<string>[] = [];
  for (const node of nodes) scopesOf(node.id).forEach((scope, depth) => (byDepth[depth] ??= new Set()).add(scope));
  let best = new Set<string>();
  for (const scopes of byDepth.reverse()) {
    best = scopes;
    if (grouped(nodes, (scope) => scopes.has(scope)).length <= most) break;
  }
  return best;
}
