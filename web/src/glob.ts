// Globs as on the command line: * any characters, ? one of them. Without either, any part of a name will do.

export function matcher(pattern: string): (name: string) => boolean {
  const wanted = pattern.trim();
  if (!wanted) return () => true;
  if (!/[*?]/.test(wanted)) {
    const part = wanted.toLowerCase();
    return (name) => name.toLowerCase().includes(part);
  }
  const source = wanted.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
  const whole = new RegExp(`^${source}$`, "isu");
  return (name) => whole.test(name);
}
