// Faults of a page on paper, seen with the media type print: dark parts, closed details, charts taller than a sheet.
const [sheet] = arguments, faults = [];
const luminance = (colour) => {
  const [r, g, b, alpha = 1] = colour.match(/[\d.]+/g).map(Number);
  return alpha === 0 ? 1 : (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
};
const shown = (e) => e.checkVisibility() && e.getBoundingClientRect().height > 0;
for (const e of [document.documentElement, ...document.body.querySelectorAll(":not(svg *)"), document.body]) {
  const style = getComputedStyle(e);
  if (shown(e) && luminance(style.backgroundColor) < 0.8) faults.push(`dark: ${e.outerHTML.slice(0, 120)}`);
}
if (getComputedStyle(document.documentElement).colorScheme !== "light") faults.push("dark: the margins of the sheet");
for (const d of document.querySelectorAll("details")) {
  if (shown(d) && d.lastElementChild.getBoundingClientRect().height === 0) faults.push(`closed: ${d.textContent.trim().slice(0, 60)}`);
}
for (const f of document.querySelectorAll("main figure")) {
  const height = f.getBoundingClientRect().height;
  const splits = getComputedStyle(f).breakInside !== "avoid" && !f.querySelector(".line");
  if (height > sheet || splits) faults.push(`cut by the end of a page: ${f.id}, ${height.toFixed(0)} px`);
}
// The browser shrinks a page that is wider than the sheet; by more than a quarter its tables cannot be read.
const { scrollWidth, clientWidth } = document.documentElement;
if (scrollWidth > 1.25 * clientWidth) faults.push(`wider than the sheet: ${scrollWidth} of ${clientWidth} px`);
return faults;
