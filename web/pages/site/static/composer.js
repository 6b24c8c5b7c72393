// The forms in which a person writes to the assistant: files, drafts, slash commands and the Enter key. app.js sends them.
"use strict";

// empty makes a form ready for the next message. A message that was not sent comes back, with its id. The form that starts a
// chat stays as it is until the page of the chat follows.
function empty(form, button) {
  if (!byID("entries")) {
    const unlock = lock(form);
    return (accepted) => {
      unlock(accepted);
      if (accepted && !button?.name) { // the demo sends no text of the person
        setText(form.elements.text, "");
        setFiles(form, []);
        form.elements.id.value = newID();
        form.elements.message.value = newID();
      }
    };
  }
  const { id, text } = form.elements;
  const sent = { id: id.value, text: text.value, files: filesOf(form) };
  unsentOf(form).push(sent);
  id.value = newID();
  setText(text, "");
  setFiles(form, []);
  toEnd();
  return (accepted) => {
    unsent.set(form, unsentOf(form).filter((one) => one !== sent));
    if (!accepted) {
      id.value = sent.id;
      setText(text, [sent.text, text.value].filter(Boolean).join("\n"));
      setFiles(form, [...sent.files, ...filesOf(form)]);
    }
    storeDraft(form);
  };
}

function newID() {
  return Array.from(crypto.getRandomValues(new Uint8Array(15)), (n) => (n % 36).toString(36)).join("");
}

// setText changes a text as typing does.
function setText(field, text) {
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

// Drafts

const unsent = new Map(); // what was sent and not accepted yet, by form: the draft has it too
function unsentOf(form) {
  return unsent.get(form) ?? unsent.set(form, []).get(form);
}

function storeDraft(form) {
  const key = draftPrefix + form.dataset.draft;
  const text = [...unsentOf(form).map((one) => one.text), form.elements.text.value].filter(Boolean).join("\n");
  try {
    text ? localStorage.setItem(key, text) : localStorage.removeItem(key);
  } catch {
    // the storage is full or forbidden: the draft lasts as long as the page
  }
}

for (const form of document.querySelectorAll("[data-draft]")) {
  const { text } = form.elements;
  const draft = localStorage.getItem(draftPrefix + form.dataset.draft);
  if (draft && !text.value) {
    setText(text, draft);
  }
  text.addEventListener("input", () => storeDraft(form));
}

// Files are chosen, pasted or dropped. Each is a chip above the text. Pictures are scaled down so that all fit into a message.

const chips = new Map(); // by form: { original, file, bitmap, problem } for each file
const fitting = new Map(); // by form: what runs until all are fitted
const maxEdge = 2000; // of a picture, in pixels
const filesOf = (form) => (chips.get(form) ?? []).map((chip) => chip.original);
const isHEIC = (file) => /^image\/hei[cf]/.test(file.type) || /\.hei[cf]$/i.test(file.name);
const isPicture = (file) => /^image\/(jpeg|png|webp|avif|bmp)$/.test(file.type) || isHEIC(file);

function setFiles(form, files) {
  const known = chips.get(form) ?? [];
  const all = files.map((file) => known.find((chip) => chip.original === file) ?? { original: file, file });
  chips.set(form, all);
  showFiles(form);
  const run = fit(form, all).then(() => showFiles(form));
  fitting.set(form, run);
  return run;
}

// prepare waits until the files of a form are fitted, and reports whether the form can be sent. A second press meanwhile sends
// nothing.
async function prepare(form) {
  if (form.dataset.preparing) {
    return false;
  }
  form.dataset.preparing = true;
  while (fitting.get(form)) {
    const run = fitting.get(form);
    await run;
    if (fitting.get(form) === run) {
      fitting.delete(form);
    }
  }
  delete form.dataset.preparing;
  const refused = (chips.get(form) ?? []).find((chip) => chip.problem);
  if (refused) {
    form.querySelector(":scope > .problem")?.remove();
    showProblem(form, refused.original.name + ": " + refused.problem);
  }
  return !refused;
}

// fit scales the pictures of a form down. They share what the other files leave of the limit.
async function fit(form, all) {
  const list = form.querySelector(".files");
  const limit = Number(list.dataset.limit);
  for (const chip of all) {
    if (!isPicture(chip.original) || chip.bitmap) {
      continue;
    }
    try {
      chip.bitmap = await createImageBitmap(chip.original);
    } catch {
      chip.problem = isHEIC(chip.original) ? list.dataset.notDecoded : undefined;
    }
  }
  const pictures = all.filter((chip) => chip.bitmap);
  const rest = all.filter((chip) => !chip.bitmap).reduce((size, chip) => size + chip.original.size, 0);
  const share = (limit - rest) / pictures.length;
  for (const chip of pictures) {
    chip.file = await scaled(chip, share);
  }
  const size = all.reduce((sum, chip) => sum + chip.file.size, 0);
  for (const chip of all) {
    if (!isHEIC(chip.original) || chip.bitmap) {
      chip.problem = size > limit ? list.dataset.tooLarge : undefined;
    }
  }
}

// scaled returns a picture as it is if it is small enough, else as a JPEG of at most a size, if one of the tries has it.
async function scaled({ original, bitmap }, size) {
  const edge = Math.max(bitmap.width, bitmap.height);
  if (edge <= maxEdge && original.size <= size && !isHEIC(original)) {
    return original;
  }
  let file = original;
  for (const [longest, quality] of [[maxEdge, 0.85], [maxEdge, 0.7], [1600, 0.7], [1200, 0.6], [800, 0.6], [500, 0.5]]) {
    const canvas = drawn(bitmap, Math.min(1, longest / edge));
    const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", quality));
    file = new File([blob], original.name.replace(/\.[^.]*$/, "") + ".jpg", { type: "image/jpeg" });
    if (file.size <= size) {
      break;
    }
  }
  return file;
}

function drawn(bitmap, scale) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext("2d");
  context.fillStyle = "white"; // a JPEG has no transparent pixels
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas;
}

// showFiles shows the chips of a form, and puts their files into its field, which sends them.
function showFiles(form) {
  const all = chips.get(form);
  const transfer = new DataTransfer();
  all.forEach((chip) => transfer.items.add(chip.file));
  form.elements.file.files = transfer.files;
  const list = form.querySelector(".files");
  list.replaceChildren(...all.map((chip) => chipOf(form, chip, list)));
  list.hidden = all.length === 0;
}

function chipOf(form, chip, list) {
  const element = document.createElement("li");
  if (chip.bitmap) {
    element.append(drawn(chip.bitmap, Math.min(1, 96 / Math.max(chip.bitmap.width, chip.bitmap.height))));
  }
  const name = document.createElement("span");
  name.className = "name";
  name.textContent = chip.file.name;
  const size = document.createElement("small");
  size.textContent = sizeText(chip.file.size);
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "quiet";
  remove.textContent = "×";
  remove.ariaLabel = list.dataset.remove + " " + chip.file.name;
  remove.addEventListener("click", () => setFiles(form, filesOf(form).filter((file) => file !== chip.original)));
  element.append(name, size, remove);
  const problem = chip.problem ?? unreadableText(chip.file);
  if (problem) {
    const why = document.createElement("small");
    why.className = "problem";
    why.textContent = problem;
    element.append(why);
  }
  return element;
}

function sizeText(bytes) {
  return bytes < 1 << 20 ? Math.ceil(bytes / 1024) + " KiB" : (bytes / (1 << 20)).toFixed(1) + " MiB";
}

// unreadableText says that the model of the chat cannot read a file, if that is known.
function unreadableText(file) {
  const { unreadable, why } = byID("send")?.dataset ?? {};
  const kind = file.type === "application/pdf" ? "pdf" : file.type.split("/")[0];
  return unreadable?.split(" ").includes(kind) ? why : "";
}

function attach(event, transfer) {
  const form = event.target.closest?.("[data-draft]");
  if (form && transfer.files.length > 0) {
    event.preventDefault();
    setFiles(form, [...filesOf(form), ...transfer.files]);
  }
}

document.addEventListener("paste", (event) => attach(event, event.clipboardData));
document.addEventListener("dragover", (event) => event.target.closest?.("[data-draft]") && event.preventDefault());
document.addEventListener("drop", (event) => attach(event, event.dataTransfer));
document.addEventListener("change", (event) => {
  const form = event.target.form;
  if (event.target.type === "file" && form && "draft" in form.dataset) {
    setFiles(form, [...filesOf(form), ...event.target.files]);
  }
});
let shownModel = byID("send")?.dataset.why;
document.addEventListener("updated", () => {
  if (shownModel !== byID("send")?.dataset.why) { // the chat has another model
    shownModel = byID("send").dataset.why;
    chips.forEach((_, form) => showFiles(form));
  }
});

// Height

// fitHeight makes a field as high as its text, for browsers without field-sizing, such as Safari 26.0.
function fitHeight(field) {
  field.style.height = "auto";
  field.style.height = field.scrollHeight + field.offsetHeight - field.clientHeight + "px";
}

if (!CSS.supports("field-sizing", "content")) {
  document.querySelectorAll(".composer textarea").forEach(fitHeight);
  document.addEventListener("input", (event) => event.target.matches(".composer textarea, .edit textarea") && fitHeight(event.target));
}

// The commands that begin as the text does are listed above the composer.
function showCommands() {
  const typed = byID("text").value;
  const fits = (name) => typed.startsWith("/") && (name.startsWith(typed) || typed.startsWith(name + " "));
  let any = false;
  for (const command of byID("commands").children) {
    command.hidden = !fits(command.dataset.command);
    any ||= !command.hidden;
  }
  byID("commands").hidden = !any;
}

if (byID("commands")) {
  byID("text").addEventListener("input", showCommands);
  byID("commands").addEventListener("click", (event) => {
    setText(byID("text"), event.target.closest("[data-command]").dataset.command);
    byID("text").focus();
  });
}

// Enter sends. Shift and Enter begin a line. On a phone, Enter also begins a line, because the keyboard has no Shift and
// Enter. An Enter that chooses a word of an input method sends nothing: Safari marks it only with the key code 229.
document.addEventListener("keydown", (event) => {
  const chooses = event.isComposing || event.keyCode === 229;
  const sends = event.key === "Enter" && !event.shiftKey && !chooses && event.target.matches(".composer textarea");
  if (sends && !matchMedia("(pointer: coarse)").matches) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});
