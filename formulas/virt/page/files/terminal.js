// A terminal of 80 columns, as serial consoles expect: VT100 and most of xterm, drawn with elements and
// classes. Data from the guest only ever becomes text.

export const COLUMNS = 80;
export const ROWS = 25;
const KEPT = 1000;
const PLAIN = "";
const KEYS = {
  Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", ArrowUp: "\x1b[A", ArrowDown: "\x1b[B",
  ArrowRight: "\x1b[C", ArrowLeft: "\x1b[D", Home: "\x1b[H", End: "\x1b[F", Insert: "\x1b[2~",
  Delete: "\x1b[3~", PageUp: "\x1b[5~", PageDown: "\x1b[6~", F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR",
  F4: "\x1bOS", F5: "\x1b[15~", F6: "\x1b[17~", F7: "\x1b[18~", F8: "\x1b[19~", F9: "\x1b[20~",
  F10: "\x1b[21~", F11: "\x1b[23~", F12: "\x1b[24~",
};
// the line drawing of VT100
const LINES = {
  j: "┘", k: "┐", l: "┌", m: "└", n: "┼", q: "─", t: "├", u: "┤", v: "┴", w: "┬", x: "│", a: "▒",
};

const blank = () => Array.from({ length: COLUMNS }, () => [" ", PLAIN]);

/** The characters that a key sends; null: none, or they arrive as input. */
export function said_by(event) {
  if (event.isComposing || event.metaKey) return null;
  if (event.ctrlKey && !event.altKey && event.key.length === 1) {
    const code = event.key.toUpperCase().charCodeAt(0);
    if (event.key === " ") return "\0";
    return code >= 64 && code < 96 ? String.fromCharCode(code - 64) : null;
  }
  if (event.key in KEYS && !event.ctrlKey) return KEYS[event.key];
  if (event.altKey && !event.ctrlKey && event.key.length === 1) return `\x1b${event.key}`;
  return null;
}

/** The screen: `write` processes output, `draw` draws it into an element. */
export class Terminal {
  /** answer: called with the responses to terminal queries. */
  constructor(element, answer) {
    this.element = element;
    this.answer = answer;
    this.decoder = new TextDecoder();
    this.past = [];
    this.reset();
  }

  reset() {
    this.rows = Array.from({ length: ROWS }, blank);
    this.dirty = new Set(this.rows.keys());
    Object.assign(this, {
      row: 0, column: 0, style: PLAIN, top: 0, bottom: ROWS - 1, saved: [0, 0, PLAIN], rest: "",
      attributes: new Map(), lines: false, shown: true, other: null, wraps: true,
    });
  }

  /** Process output as bytes. */
  write(bytes) {
    let text = this.rest + this.decoder.decode(bytes, { stream: true });
    this.rest = "";
    while (text) {
      const escape = text.indexOf("\x1b");
      const words = escape < 0 ? text : text.slice(0, escape);
      for (const one of words) this.put(one);
      if (escape < 0) break;
      const used = this.escape(text.slice(escape));
      if (!used) {
        this.rest = text.slice(escape, escape + 4096);
        break;
      }
      text = text.slice(escape + used);
    }
    this.draw_soon();
  }

  put(one) {
    const code = one.charCodeAt(0);
    if (one === "\r") this.column = 0;
    else if (one === "\n" || one === "\v" || one === "\f") this.feed();
    else if (one === "\b") this.column = Math.max(0, Math.min(this.column, COLUMNS) - 1);
    else if (one === "\t") this.column = Math.min(COLUMNS - 1, (Math.floor(this.column / 8) + 1) * 8);
    else if (code === 14 || code === 15) this.lines = code === 14;
    else if (code >= 32 && code !== 127) {
      if (this.column >= COLUMNS) {
        if (this.wraps) {
          this.column = 0;
          this.feed();
        } else this.column = COLUMNS - 1;
      }
      this.rows[this.row][this.column] = [(this.lines && LINES[one]) || one, this.style];
      this.touch(this.row);
      this.column += 1;
    }
  }

  feed() {
    if (this.row === this.bottom) this.scroll(1);
    else this.go(this.row + 1, this.column);
  }

  /** Scroll the lines between top and bottom up or down. */
  scroll(count) {
    for (let n = 0; n < Math.min(Math.abs(count), ROWS); n += 1) {
      if (count > 0) {
        const [gone] = this.rows.splice(this.top, 1);
        this.rows.splice(this.bottom, 0, blank());
        if (this.top === 0 && !this.other) this.past.push(gone.map(([one]) => one).join("").trimEnd());
      } else {
        this.rows.splice(this.bottom, 1);
        this.rows.splice(this.top, 0, blank());
      }
    }
    this.past.splice(0, this.past.length - KEPT);
    for (let row = this.top; row <= this.bottom; row += 1) this.touch(row);
  }

  touch(row) {
    this.dirty.add(row);
  }

  go(row, column) {
    this.touch(this.row);
    this.row = Math.max(0, Math.min(ROWS - 1, row));
    this.column = Math.max(0, Math.min(COLUMNS - 1, column));
    this.touch(this.row);
  }

  erase(row, from, to) {
    for (let column = from; column < to; column += 1) this.rows[row][column] = [" ", this.style];
    this.touch(row);
  }

  /** Process the sequence at the start of a text. Returns its length, 0 if it is incomplete. */
  escape(text) {
    const csi = /^\x1b\[([?>=!]?)([\d;]*)[ -/]*([@-~])/.exec(text);
    if (csi) {
      this.control(csi[1], csi[2].split(";").map((one) => (one ? Math.min(Number(one), 9999) : 0)), csi[3]);
      return csi[0].length;
    }
    if (text.length > 1 && !"[]()#%PX^_".includes(text[1])) {
      this.single(text[1]);
      return 2;
    }
    const set = /^\x1b([()#%])(.)/.exec(text);
    if (set) {
      if (set[1] === "(") this.lines = set[2] === "0";
      return 3;
    }
    const string = /^\x1b[\]PX^_][^\x07\x1b]*(\x07|\x1b\\)/.exec(text);
    if (string) return string[0].length;
    // invalid and unterminated sequences are skipped
    return /^\x1b(\[[?>=!]?[\d;]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[()#%])?$/.test(text) && text.length < 4096 ? 0 : 1;
  }

  single(one) {
    if (one === "7") this.saved = [this.row, this.column, this.style];
    else if (one === "8") {
      this.go(this.saved[0], this.saved[1]);
      [, , this.style] = this.saved;
    } else if (one === "c") this.reset();
    else if (one === "D") this.feed();
    else if (one === "E") {
      this.column = 0;
      this.feed();
    } else if (one === "M") {
      if (this.row === this.top) this.scroll(-1);
      else this.go(this.row - 1, this.column);
    }
  }

  control(mark, numbers, word) {
    const [first, second] = numbers;
    const count = first || 1;
    const column = Math.min(this.column, COLUMNS - 1);
    const moves = {
      A: [-count, 0], B: [count, 0], C: [0, count], D: [0, -count],
    };
    if (mark === "?" && (word === "h" || word === "l")) this.mode(numbers, word === "h");
    else if (mark) return;
    else if (word in moves) this.go(this.row + moves[word][0], column + moves[word][1]);
    else if (word === "E" || word === "F") this.go(this.row + (word === "E" ? count : -count), 0);
    else if (word === "H" || word === "f") this.go(count - 1, (second || 1) - 1);
    else if (word === "G" || word === "`") this.go(this.row, count - 1);
    else if (word === "d") this.go(count - 1, column);
    else if (word === "J") this.erase_screen(first);
    else if (word === "K") this.erase(this.row, first ? 0 : column, first === 1 ? column + 1 : COLUMNS);
    else if (word === "X") this.erase(this.row, column, Math.min(COLUMNS, column + count));
    else if (word === "P" || word === "@") this.shift(word === "P", column, Math.min(count, COLUMNS));
    else if (word === "L" || word === "M") this.shift_lines(word === "L" ? -count : count);
    else if (word === "S" || word === "T") this.scroll(word === "S" ? count : -count);
    else if (word === "m") this.colour(numbers);
    else if (word === "r") this.region(count - 1, (second || ROWS) - 1);
    else if (word === "s") this.single("7");
    else if (word === "u") this.single("8");
    else if (word === "n" && first === 6) this.answer(`\x1b[${this.row + 1};${column + 1}R`);
    else if (word === "n" && first === 5) this.answer("\x1b[0n");
    else if (word === "c") this.answer("\x1b[?6c");
  }

  mode(numbers, on) {
    for (const one of numbers) {
      if (one === 25) this.shown = on;
      else if (one === 7) this.wraps = on;
      else if ((one === 1049 || one === 47 || one === 1047) && on !== Boolean(this.other)) {
        // the alternate screen of editors and pagers
        if (on) this.other = [this.rows, this.row, this.column];
        const [rows, row, column] = on ? [Array.from({ length: ROWS }, blank), 0, 0] : this.other;
        if (!on) this.other = null;
        this.rows = rows;
        this.go(row, column);
        for (let n = 0; n < ROWS; n += 1) this.touch(n);
      }
    }
    this.touch(this.row);
  }

  erase_screen(what) {
    const column = Math.min(this.column, COLUMNS - 1);
    for (let row = 0; row < ROWS; row += 1) {
      if (row === this.row && what < 2) this.erase(row, what ? 0 : column, what ? column + 1 : COLUMNS);
      else if (what >= 2 || (what ? row < this.row : row > this.row)) this.erase(row, 0, COLUMNS);
    }
  }

  shift(left, at, count) {
    const row = this.rows[this.row];
    const blanks = blank().slice(0, count);
    if (left) row.splice(COLUMNS - count, 0, ...row.splice(at, count).map((_, n) => blanks[n]));
    else row.splice(at, 0, ...blanks);
    row.length = COLUMNS;
    for (let n = 0; n < COLUMNS; n += 1) row[n] = row[n] || [" ", PLAIN];
    this.touch(this.row);
  }

  shift_lines(count) {
    const { top } = this;
    if (this.row < top || this.row > this.bottom) return;
    const kept = this.other;
    this.other = kept || [];
    this.top = this.row;
    this.scroll(count);
    Object.assign(this, { top, other: kept });
  }

  region(top, bottom) {
    const fits = top < bottom && bottom < ROWS;
    Object.assign(this, fits ? { top, bottom } : { top: 0, bottom: ROWS - 1 });
    this.go(0, 0);
  }

  colour(numbers) {
    const now = this.attributes;
    for (let n = 0; n < numbers.length; n += 1) {
      const one = numbers[n];
      if (one === 0) now.clear();
      else if (one === 1 || one === 4 || one === 7) now.set({ 1: "bold", 4: "under", 7: "turned" }[one], "");
      else if (one === 22 || one === 24 || one === 27) now.delete({ 22: "bold", 24: "under", 27: "turned" }[one]);
      else if ((one >= 30 && one <= 37) || (one >= 90 && one <= 97)) now.set("f", one % 10);
      else if ((one >= 40 && one <= 47) || (one >= 100 && one <= 107)) now.set("b", one % 10);
      else if (one === 39 || one === 49) now.delete(one === 39 ? "f" : "b");
      else if (one === 38 || one === 48) n += numbers[n + 1] === 5 ? 2 : 4;
    }
    this.style = [...now].map(([name, value]) => `${name}${value}`).join(" ");
  }

  draw_soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    while (this.element.children.length < ROWS) this.element.append(document.createElement("div"));
    this.touch(this.row);
    for (const row of this.dirty) this.draw_row(row);
    this.dirty.clear();
    this.touch(this.row);
  }

  draw_row(row) {
    const parts = [];
    const at = row === this.row && this.shown ? Math.min(this.column, COLUMNS - 1) : -1;
    this.rows[row].forEach(([one, style], column) => {
      const name = column === at ? `${style} cursor` : style;
      const last = parts[parts.length - 1];
      if (last && last[1] === name) last[0] += one;
      else parts.push([one, name]);
    });
    this.element.children[row].replaceChildren(...parts.map(([text, name]) => {
      if (!name) return text;
      const made = document.createElement("span");
      made.className = name.trim();
      made.textContent = text;
      return made;
    }));
  }

  /** The text of the screen, including what has scrolled away. */
  text() {
    return [...this.past, ...this.rows.map((row) => row.map(([one]) => one).join("").trimEnd())].join("\n");
  }
}
