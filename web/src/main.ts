// Makes a report lively. Without this script the page can be read all the same.
import { setUpBrush } from "./brush";
import { setUpCards, setUpCopying, setUpSettings } from "./card";
import { LANGUAGES, NAMES, changed, choose, current, onChange, remember, remembered } from "./language";
import { type NetworkSpec, setUpNetworks } from "./network";
import { setUpTables } from "./tables";
import { word } from "./words";

interface ReportData {
  networks: NetworkSpec[];
}

function setUpLanguage(place: HTMLElement): void {
  const wanted = remembered("language");
  if (wanted === "en" || wanted === "zh") choose(wanted);
  const choice = document.createElement("select");
  for (const language of LANGUAGES) {
    const option = document.createElement("option");
    option.value = language;
    option.textContent = NAMES[language];
    option.selected = language === current();
    choice.append(option);
  }
  choice.id = "language";
  const tell = (): void => choice.setAttribute("aria-label", word("language", current()));
  tell();
  onChange(tell);
  choice.addEventListener("change", () => choose(choice.value === "zh" ? "zh" : "en"));
  place.append(choice);
}

function setUpTheme(place: HTMLElement): void {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = (theme: string | null): void => {
    root.dataset.theme = theme ?? (system.matches ? "dark" : "light");
    changed();
  };
  show(remembered("theme"));
  system.addEventListener("change", () => show(remembered("theme")));
  const button = document.createElement("button");
  button.type = "button";
  button.id = "theme";
  button.textContent = "◐";
  const tell = (): void => {
    button.setAttribute("aria-label", word("theme", current()));
    button.title = word("theme", current());
  };
  tell();
  onChange(tell);
  button.addEventListener("click", () => {
    const other = root.dataset.theme === "dark" ? "light" : "dark";
    remember("theme", other);
    show(other);
  });
  place.append(button);
}

function start(): void {
  const data = JSON.parse(document.getElementById("report-data")?.textContent ?? "{}") as ReportData;
  const settings = document.createElement("div");
  settings.className = "settings";
  document.querySelector("header")?.append(settings);
  setUpLanguage(settings);
  setUpTheme(settings);
  setUpTables();
  setUpNetworks(data.networks);
  setUpCards(data.networks);
  setUpBrush(data.networks);
  setUpSettings();
  setUpCopying();
  document.documentElement.dataset.ready = "yes";
}

start();
