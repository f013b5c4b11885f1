// Faults of layout that a check can see: what scrolls the page, and text in charts that is cut or covered.
const faults = [];
const page = document.documentElement;
if (page.scrollWidth > page.clientWidth) {
  const wide = [...document.querySelectorAll("main *, body > *")].filter((e) => e.getBoundingClientRect().right > page.clientWidth + 1
    && !e.closest(".scroll, svg, pre, .table-responsive"));
  faults.push(`the page scrolls by ${page.scrollWidth - page.clientWidth} px: ${wide.slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join(" ")}`);
}
for (const svg of document.querySelectorAll("figure svg")) {
  const box = svg.getBoundingClientRect();
  if (!box.width || !box.height) continue;
  const name = svg.closest("figure").id || svg.getAttribute("class");
  const texts = [...svg.querySelectorAll("text")].map((t) => [t.textContent.trim(), t.getBoundingClientRect()])
    .filter(([text, r]) => text && r.width);
  for (const [text, r] of texts) {
    const beyond = Math.max(box.left - r.left, r.right - box.right, box.top - r.top, r.bottom - box.bottom);
    if (beyond > 4) faults.push(`${name}: “${text}” lies ${beyond.toFixed(0)} px outside of its chart`);
  }
  texts.forEach(([text, a], i) => {
    for (const [other, b] of texts.slice(i + 1)) {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && high > 0.35 * Math.min(a.height, b.height)) faults.push(`${name}: “${text}” and “${other}” overlap`);
    }
  });
}
return faults;
