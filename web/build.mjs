// Bundles the front end into the package's assets; --tests bundles the tests instead.
// The first line of each asset names the sources it was built from, so that a stale bundle is noticed without npm.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "../src/roundoff/pages/html/assets");

/** Every file that decides what the bundle is. */
function sources() {
  const found = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  return [...found, join(here, "package-lock.json"), join(here, "build.mjs")]
    .map((path) => relative(here, path).replaceAll("\\", "/"))
    .sort();
}

function digest() {
  const hash = createHash("sha256");
  for (const name of sources()) {
    hash.update(`${name}\n`);
    hash.update(readFileSync(join(here, name)));
  }
  return hash.digest("hex");
}

const common = { bundle: true, minify: true, target: "es2022", charset: "utf8", write: false, logLevel: "warning" };

async function bundled(entry, options) {
  const result = await build({ ...common, entryPoints: [join(here, entry)], ...options });
  return result.outputFiles[0].text;
}

if (process.argv.includes("--tests")) {
  rmSync(join(here, "build"), { recursive: true, force: true });
  const entryPoints = readdirSync(join(here, "tests")).map((name) => join(here, "tests", name));
  await build({ ...common, minify: false, write: true, entryPoints, outdir: join(here, "build"), platform: "node", format: "esm", outExtension: { ".js": ".mjs" } });
} else {
  const stamp = `/*! sources ${digest()} */\n`;
  const script = await bundled("src/main.ts", { format: "iife", legalComments: "inline" });
  // A report holds the script inside of an element that must not end within it.
  writeFileSync(join(assets, "report.js"), stamp + script.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--"));
  writeFileSync(join(assets, "report.css"), stamp + (await bundled("src/report.css", {})));
}
