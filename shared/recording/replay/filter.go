package replay

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/clusterpass/clusterpass/shared/utf8tail"
)

// Filter writes recorded output to a terminal. It passes text and the sequences that draw it. It removes sequences that
// make a terminal answer, or change more than its screen: queries, titles, the clipboard, the mouse, printing. A user
// who was recorded could use these against the reader. It also removes changes of tab stops, which Reset cannot undo.
// Text is made valid UTF-8.
type Filter struct {
	W io.Writer
	// NewLines adds a carriage return to each line feed, for output that no remote terminal has processed.
	NewLines bool

	state    filterState
	sequence []byte // the escape sequence so far, without ESC
	skipped  int    // bytes of the string so far
	partial  []byte // the beginning of a character
	last     rune
}

type filterState int

const (
	inText filterState = iota
	inEscape
	inCSI
	inString // OSC, DCS, SOS, PM or APC
)

const (
	escape     = 0x1b
	bell       = 0x07
	cancel     = 0x18
	substitute = 0x1a
	// maxSequence bounds the memory of a sequence. Longer ones are removed.
	maxSequence = 128
	// maxString is the size of a string, after which text passes again. A string without an end must not hide what
	// follows it.
	maxString = 4 << 10
	// maxDigits bounds numbers, such as how often a character is repeated.
	maxDigits = 4
)

// Write implements io.Writer.
func (f *Filter) Write(p []byte) (int, error) {
	data := append(f.partial, p...)
	tail := utf8tail.Len(data)
	f.partial = bytes.Clone(data[len(data)-tail:])
	out := make([]byte, 0, len(data)+len(data)/8)
	for text := data[:len(data)-tail]; len(text) > 0; {
		r, size := utf8.DecodeRune(text)
		out = f.add(out, r)
		text = text[size:]
	}
	if _, err := f.W.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// add appends what remains of one character.
func (f *Filter) add(out []byte, r rune) []byte {
	const firstC1, lastC1 = 0x80, 0x9f // controls of 8 bits, which some terminals obey in UTF-8
	switch {
	case r == cancel || r == substitute:
		f.state = inText
		return out
	case r == escape: // also ends a string, as in terminals
		f.state, f.sequence = inEscape, f.sequence[:0]
		return out
	case f.state == inString:
		f.skipString(r)
		return out
	case r < ' ' || r == 0x7f:
		return f.control(out, r)
	case firstC1 <= r && r <= lastC1:
		return out
	}
	switch f.state {
	case inEscape:
		return f.escape(out, r)
	case inCSI:
		return f.csi(out, r)
	}
	f.last = r
	return utf8.AppendRune(out, r)
}

// control passes the controls that move the cursor, ring the bell or choose a character set.
func (f *Filter) control(out []byte, r rune) []byte {
	if r == '\n' && f.NewLines && f.last != '\r' {
		out = append(out, '\r')
	}
	f.last = r
	if strings.ContainsRune("\a\b\t\n\v\f\r\x0e\x0f", r) {
		out = append(out, byte(r))
	}
	return out
}

func (f *Filter) skipString(r rune) {
	const stringTerminator = 0x9c
	f.skipped += utf8.RuneLen(r)
	if r == bell || r == stringTerminator || f.skipped >= maxString {
		f.state = inText
	}
}

// escape handles a character after ESC.
func (f *Filter) escape(out []byte, r rune) []byte {
	if len(f.sequence) == 0 {
		switch r {
		case '[':
			f.state = inCSI
			return out
		case ']', 'P', 'X', '^', '_':
			f.state, f.skipped = inString, 0
			return out
		case 'c': // it would also remove what the reader's terminal has kept
			f.state = inText
			return append(out, softReset...)
		}
	}
	if ' ' <= r && r <= '/' { // the final character follows
		if len(f.sequence) < maxSequence {
			f.sequence = append(f.sequence, byte(r))
		}
		return out
	}
	f.state = inText
	intermediate := string(f.sequence)
	passes := intermediate == "" && strings.ContainsRune("78=>DEMNOno|}~", r) ||
		len(intermediate) == 1 && strings.Contains("()*+-./#", intermediate) && r < utf8.RuneSelf
	if !passes {
		return out
	}
	out = append(append(out, escape), intermediate...)
	return utf8.AppendRune(out, r)
}

// csi handles a character of a control sequence, such as the m of ESC [ 1 m.
func (f *Filter) csi(out []byte, r rune) []byte {
	switch {
	case r > '~':
		f.state = inText
		return out
	case r < '@':
		if len(f.sequence) <= maxSequence {
			f.sequence = append(f.sequence, byte(r))
		}
		return out
	}
	f.state = inText
	sequence, ok := allowed(string(f.sequence), byte(r))
	if !ok || len(f.sequence) > maxSequence {
		return out
	}
	out = append(append(out, escape, '['), sequence...)
	return append(out, byte(r))
}

// drawing are the final characters of the sequences that draw text, without a private prefix.
const drawing = "@ABCDEFGHIJKLMPSTXZ`abdefmrsu"

// modes are the private modes that affect the screen alone. Others report the mouse, the focus or pasted text.
var modes = []int{1, 3, 5, 6, 7, 12, 25, 45, 47, 69, 1047, 1048, 1049, 2026}

// allowed returns the parameters of a control sequence that pass.
func allowed(parameters string, final byte) (string, bool) {
	if !hasHarmlessNumbers(parameters, final) {
		return "", false
	}
	isNumeric := strings.Trim(parameters, "0123456789;:") == ""
	switch {
	case isNumeric && strings.IndexByte(drawing, final) >= 0:
		return parameters, true
	case final == 'h' || final == 'l':
		private, ok := strings.CutPrefix(parameters, "?")
		if !ok {
			return parameters, parameters == "4" || parameters == "20"
		}
		var passed []string
		for mode := range strings.SplitSeq(private, ";") {
			if n, err := strconv.Atoi(mode); err == nil && slices.Contains(modes, n) {
				passed = append(passed, mode)
			}
		}
		return "?" + strings.Join(passed, ";"), len(passed) > 0
	case final == 'J' || final == 'K':
		return parameters, strings.Trim(parameters, "?0123456789") == ""
	case final == 'p':
		return parameters, parameters == "!"
	case final == 'q':
		return parameters, strings.HasSuffix(parameters, " ") && strings.Trim(parameters, "0123456789 ") == ""
	}
	return "", false
}

// hasHarmlessNumbers is false for long numbers, and for a sequence that erases the reader's history.
func hasHarmlessNumbers(parameters string, final byte) bool {
	isNoDigit := func(r rune) bool { return r < '0' || r > '9' }
	for number := range strings.FieldsFuncSeq(parameters, isNoDigit) {
		n, err := strconv.Atoi(number)
		if err != nil || len(number) > maxDigits || final == 'J' && n == 3 {
			return false
		}
	}
	return true
}

// clearScreen clears the screen, and moves the cursor to its start.
const clearScreen = "\x1b[H\x1b[2J"

// softReset resets the modes of a terminal and clears its screen. Unlike ESC c, it keeps earlier lines and tab stops.
const softReset = "\x1b[!p" + clearScreen

// Reset ends what recorded output may have left: colours, a hidden cursor, the second screen, modes of the keyboard,
// and all others that Filter passes.
const Reset = "\x1b[!p\x1b[4;20l\x1b[?3;5;6;45;69;2026l\x1b[0 q\x1b[0m\x1b[?25h\x1b[?1049l\x1b[?1l\x1b>\x1b[?7h" +
	"\x1b[r\x1b(B\x0f"
