const sheet = document.createElement("link");
sheet.rel = "stylesheet";
document.head.prepend(sheet);

export const frame = () => new Promise((done) => requestAnimationFrame(done));

/** Put JupyterLab's theme on the page; done when its style sheet is there and what it changes was drawn. */
window.set_theme = async (theme) => {
  const wanted = `/themes/${theme}/index.css`;
  if (sheet.getAttribute("href") === wanted) return;
  const loaded = new Promise((done) => sheet.addEventListener("load", done, { once: true }));
  sheet.href = wanted;
  document.body.dataset.jpThemeLight = String(theme === "light");
  await loaded;
  await frame();
  await frame();
};

export const themed = window.set_theme(new URLSearchParams(location.search).get("theme") ?? "light");
