// What the script itself says.
import type { Language } from "./language";

const WORDS = {
  search: { en: "name or glob, as conv_*", zh: "名称或通配符，如 conv_*" },
  searchLabel: { en: "Search rows", zh: "搜索行" },
  shown: { en: "{n} of {all} rows", zh: "{all} 行中的 {n} 行" },
  csv: { en: "CSV", zh: "CSV" },
  json: { en: "JSON", zh: "JSON" },
  download: { en: "Download this table as", zh: "下载此表：" },
  language: { en: "Language", zh: "语言" },
  theme: { en: "Light or dark", zh: "浅色或深色" },
  close: { en: "Close", zh: "关闭" },
  copy: { en: "Copy", zh: "复制" },
  copied: { en: "Copied", zh: "已复制" },
  selector: { en: "Keep this node in higher precision, written for", zh: "让该节点保持更高精度的写法：" },
  inTables: { en: "In the tables of this report", zh: "在本报告各表中" },
  inputs: { en: "reads", zh: "输入" },
  outputs: { en: "writes", zh: "输出" },
  operation: { en: "operation", zh: "算子" },
  link: { en: "Link to this node", zh: "该节点的链接" },
  unknownNode: { en: "This report has no node of that name.", zh: "本报告中没有这个名称的节点。" },
  found: { en: "{n} found", zh: "找到 {n} 个" },
  together: { en: "{n} nodes in this box", zh: "此框含 {n} 个节点" },
  show: { en: "What the boxes show", zh: "框中显示" },
  keys: { en: "/ find, n p culprits, [ ] neighbours, e open a block, + - f zoom, Esc clear", zh: "/ 查找，n p 元凶，[ ] 相邻，e 展开块，+ - f 缩放，Esc 清除" },
  input: { en: "← input", zh: "← 输入" },
  output: { en: "output →", zh: "输出 →" },
  closer: { en: "Zoom in (+, Ctrl and wheel)", zh: "放大（+，Ctrl 加滚轮）" },
  farther: { en: "Zoom out (-)", zh: "缩小（-）" },
  fit: { en: "Show all (f)", zh: "显示全部（f）" },
  closeBlock: { en: "Esc closes", zh: "Esc 关闭" },
  find: { en: "Find a node", zh: "查找节点" },
} as const;

export type WordKey = keyof typeof WORDS;

export function word(key: WordKey, language: Language, values: Record<string, string | number> = {}): string {
  return WORDS[key][language].replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? ""));
}

/** An element that holds a word in every language. */
export function wordElement(key: WordKey): HTMLSpanElement {
  const outer = document.createElement("span");
  for (const language of ["en", "zh"] as const) {
    const inner = document.createElement("span");
    inner.lang = language;
    inner.textContent = word(key, language);
    outer.append(inner);
  }
  return outer;
}
