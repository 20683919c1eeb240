// Which language is shown. Every phrase stands in the page in all of them; the style hides the others.

export type Language = "en" | "zh";
/** A text that is the same in every language, or one for each. */
export type Spoken = string | Record<Language, string>;

export const LANGUAGES: readonly Language[] = ["en", "zh"];
export const NAMES: Record<Language, string> = { en: "English", zh: "中文" };

export function say(text: Spoken, language: Language): string {
  return typeof text === "string" ? text : text[language];
}

export function current(): Language {
  return document.documentElement.dataset.language === "zh" ? "zh" : "en";
}

const listeners: (() => void)[] = [];

/** Called whenever the language or the colours change, for what is drawn rather than written. */
export function onChange(listener: () => void): void {
  listeners.push(listener);
}

export function changed(): void {
  for (const listener of listeners) listener();
}

export function choose(language: Language): void {
  document.documentElement.dataset.language = language;
  document.documentElement.lang = language;
  remember("language", language);
  changed();
}

/** Files from an e-mail may have no storage; nothing depends on it. */
export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(`roundoff-${key}`, value);
  } catch {
    // Not remembered, then.
  }
}

export function remembered(key: string): string | null {
  try {
    return localStorage.getItem(`roundoff-${key}`);
  } catch {
    return null;
  }
}
