// A person's own shell: xterm.js at one end of a WebSocket, the shell in the sandbox at the other (web/routes). Nothing is typed
// until the person has said so.
"use strict";

const main = byID("shell");
const toggle = byID("type");
const colorOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The policy of the page applies style elements that have its nonce, and no style attributes. xterm.js makes both.
const createElement = document.createElement.bind(document);
document.createElement = (name, options) => Object.assign(createElement(name, options), name === "style" ? { nonce: main.dataset.nonce } : {});
const setAttribute = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
  name === "style" ? (this.style.cssText = value) : setAttribute.call(this, name, value);
};

const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => ({ background: colorOf("--ground"), foreground: colorOf("--text"), cursor: colorOf("--accent"), selectionBackground: colorOf("--line") });
const terminal = new Terminal({
  disableStdin: true, fontFamily: colorOf("--mono"), fontSize: 13, lineHeight: 1.2, scrollback: 5000, minimumContrastRatio: 4.5, theme: theme(),
  linkHandler: { activate() {} }, // what is printed leads nowhere
});
const fit = new FitAddon.FitAddon();
terminal.loadAddon(fit);
terminal.open(main);
terminal.textarea.readOnly = true;
fit.fit();
dark.addEventListener("change", () => (terminal.options.theme = theme()));

const query = new URLSearchParams({ cols: terminal.cols, rows: terminal.rows, private: "private" in main.dataset });
const socket = new WebSocket(main.dataset.socket + "?" + query);
socket.binaryType = "arraybuffer";
const isOpen = () => socket.readyState === WebSocket.OPEN;
const tell = (message) => isOpen() && socket.send(JSON.stringify(message));

socket.onopen = () => {
  byID("state").textContent = "";
  toggle.disabled = false;
};

// The server waits while too much output is on its way that the terminal has not taken.
let taken = 0;
let told = 0;
let ended = null; // how

socket.onmessage = ({ data }) => {
  if (typeof data === "string") {
    ended = JSON.parse(data);
    return;
  }
  terminal.write(new Uint8Array(data), () => {
    taken += data.byteLength;
    if (taken - told >= 32 << 10) {
      told = taken;
      tell({ taken });
    }
  });
};

socket.onclose = () => {
  setTyping(false);
  toggle.disabled = true;
  const { ended: over, lost } = byID("state").dataset;
  byID("state").textContent = ended ? ended.error || over : lost;
  byID("again").hidden = false;
};

// Typing

const encoder = new TextEncoder();
const maxPiece = 16 << 10; // bytes
let control = false; // the next key is pressed with Control

function type(text) {
  if (control && text.length === 1) {
    text = String.fromCharCode(text.toUpperCase().charCodeAt(0) & 0x1f);
    setControl(false);
  }
  const bytes = encoder.encode(text);
  for (let at = 0; isOpen() && at < bytes.length; at += maxPiece) {
    socket.send(bytes.subarray(at, at + maxPiece));
  }
}

function setControl(on) {
  control = on;
  document.querySelector("[data-key=Control]").ariaPressed = String(on);
}

function setTyping(on) {
  terminal.options.disableStdin = !on;
  terminal.textarea.readOnly = !on; // the keyboard of a phone stays away
  toggle.ariaPressed = String(on);
  toggle.textContent = on ? toggle.dataset.stop : toggle.dataset.start;
  byID("keys").hidden = !on;
  on ? terminal.focus() : toggle.focus();
}

terminal.onData(type);
terminal.onBinary((text) => isOpen() && socket.send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
terminal.onResize(({ cols, rows }) => tell({ cols, rows }));
new ResizeObserver(() => fit.fit()).observe(main);

toggle.addEventListener("click", () => setTyping(terminal.options.disableStdin));
terminal.attachCustomKeyEventHandler((event) => {
  if (event.type === "keydown" && event.key === "Escape" && event.shiftKey && !terminal.options.disableStdin) {
    setTyping(false); // a way out of the terminal, which takes Tab
    return false;
  }
  return !terminal.options.disableStdin;
});

const sequences = { Escape: "\x1b", Tab: "\t", ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D" };
byID("keys").addEventListener("pointerdown", (event) => event.preventDefault()); // the terminal keeps the focus
byID("keys").addEventListener("click", (event) => {
  const { key } = event.target.closest("[data-key]")?.dataset ?? {};
  if (key === "Control") {
    setControl(!control);
  } else if (key) {
    const arrow = (terminal.modes.applicationCursorKeysMode ? "\x1bO" : "\x1b[") + sequences[key];
    type(key.startsWith("Arrow") ? arrow : sequences[key]);
  }
});
