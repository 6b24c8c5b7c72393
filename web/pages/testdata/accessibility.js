// Returns what a person cannot read, name, see or hit on a page, a line for each fault. The bounds are those of WCAG 2.2, level AA.
// It sees only what is shown: the test unfolds the page first.
(() => {
  const faults = new Set();
  const fault = (element, text) => {
    const name = [element.localName, element.id && "#" + element.id, ...[...element.classList].map((c) => "." + c)].join("");
    faults.add(name.replace(/-[a-z0-9]{15}/g, "-ID") + ": " + text + " " + JSON.stringify((element.textContent || element.ariaLabel || "").trim().slice(0, 30)));
  };
  const box = (element) => element.getBoundingClientRect();
  const isShown = (element) =>
    element.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true }) && !element.closest(".unseen") && box(element).width > 1 && box(element).height > 1;
  const isDisabled = (element) => element.closest(":disabled, [aria-disabled]") !== null;

  // Colours: [red, green, blue] from 0 to 1, and alpha
  const parse = (text) => {
    const n = text.match(/-?[\d.]+(e-?\d+)?/g)?.map(Number) ?? [];
    if (/^rgba?\(/.test(text)) return [n[0] / 255, n[1] / 255, n[2] / 255, n[3] ?? 1];
    if (/^color\(srgb /.test(text)) return [n[0], n[1], n[2], n[3] ?? 1];
    throw new Error("unknown colour " + text);
  };
  const over = (top, bottom) => [0, 1, 2].map((i) => top[i] * top[3] + bottom[i] * (1 - top[3])).concat(1);
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      layers.push(parse(getComputedStyle(e).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reduceRight((bottom, top) => over(top, bottom), [1, 1, 1, 1]);
  };
  const opacity = (element) => (element ? Number(getComputedStyle(element).opacity) * opacity(element.parentElement) : 1);
  const luminance = (color) =>
    color.slice(0, 3).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (text, element, behind) => {
    const bottom = ground(behind);
    const [r, g, b, alpha] = parse(text);
    const [dark, light] = [luminance(bottom), luminance(over([r, g, b, alpha * opacity(element)], bottom))].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const checkText = (element, style, what) => {
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const ratio = contrast(element instanceof SVGElement ? style.fill : style.color, element, element);
    if (ratio < least) fault(element, `the contrast of ${what} is ${ratio.toFixed(2)}`);
  };

  const all = [...document.body.querySelectorAll("*")].filter(isShown);
  for (const element of all.filter((e) => !isDisabled(e))) {
    const style = getComputedStyle(element);
    if (opacity(element) === 0) continue; // a field that its label shows
    if ([...element.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim())) checkText(element, style, "the text");
    for (const pseudo of ["::before", "::after"]) {
      const made = getComputedStyle(element, pseudo);
      if (!["none", "normal", '""'].includes(made.content)) checkText(element, made, pseudo);
    }
    if (element.matches("input, textarea, select")) {
      checkText(element, style, "the text");
      if (element.placeholder) checkText(element, getComputedStyle(element, "::placeholder"), "the placeholder");
      if (style.appearance !== "none" && !element.matches("[type=checkbox], [type=radio], [type=file]") && contrast(style.borderTopColor, element, element.parentElement) < 3) {
        fault(element, "the contrast of the border is " + contrast(style.borderTopColor, element, element.parentElement).toFixed(2));
      }
    }
  }

  const targets = all.filter((e) => e.matches("a[href], button, summary, select, textarea, input, [tabindex]") && !e.matches(".xterm-helper-textarea"));
  for (const element of targets.filter((e) => !e.matches("[tabindex]"))) {
    const labels = [...(element.labels ?? [])];
    const name = element.ariaLabel || labels.map((l) => l.textContent).join(" ") || (element.matches("input, textarea, select") ? "" : element.textContent);
    if (!/[\p{L}\p{N}]/u.test(name)) fault(element, "there is no name");
    const inText = element.matches("a") && getComputedStyle(element).display === "inline"; // the text decides its height
    const [width, height] = ["width", "height"].map((side) => Math.max(...[element, ...labels].map((e) => box(e)[side])));
    if (!inText && (width < 24 || height < 24)) fault(element, `the target has ${width.toFixed(0)} x ${height.toFixed(0)} px`);
  }
  for (const element of targets.filter((e) => !e.disabled)) {
    element.focus({ preventScroll: true, focusVisible: true });
    if (document.activeElement !== element) {
      fault(element, "it takes no focus");
      continue;
    }
    const shows = opacity(element) > 0 ? element : element.parentElement;
    const style = getComputedStyle(shows);
    if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1) fault(element, "its focus is not visible");
    else if (style.outlineStyle !== "auto" && contrast(style.outlineColor, shows, shows.parentElement) < 3) fault(element, "the contrast of its focus is low");
  }
  document.activeElement.blur();
  return [...faults];
})()
