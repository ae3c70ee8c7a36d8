/** Hand a file that the page already holds to the browser's downloads. */
export function saveFile(name: string, content: Blob): void {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // The click has begun the download; some browsers read the address only afterwards.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
