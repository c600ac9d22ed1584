package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hinshun/vt10x"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// record records a session and returns what opens it. Its caller is in a bubble of synctest if do sleeps.
func record(
	tb testing.TB, i recording.Info, do func(s *recording.Session),
) func(ctx context.Context) (*recording.Reader, error) {
	tb.Helper()
	signer, keys := storetest.NewSigner(tb)
	store := &storetest.Memory{}
	s, err := recording.New(recording.Config{Store: store, Signer: signer}).Begin(tb.Context(), i)
	must(tb, err)
	do(s)
	must(tb, s.Close())
	return func(ctx context.Context) (*recording.Reader, error) {
		return recording.Open(ctx, store, s.ID(), keys)
	}
}

const (
	drawingText = "\x1b[1;38:5:9mred\x1b[0m\x1b[2J\x1b[H\x1b[10;20H\x1b[K"
	screenText  = "\x1b[?1049h\x1b[?25l\x1b[1;24r\x1b7\x1b8\x1b(0q\x1b(B"
)

// TestFilterRemovesWhatIsNoDrawing fails if a recorded user can use the terminal of who plays the recording.
func TestFilterRemovesWhatIsNoDrawing(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"text":                     {"a\u00e9\u4e16\U0001f600\r\n\tb\a", "a\u00e9\u4e16\U0001f600\r\n\tb\a"},
		"colours and cursor":       {drawingText, drawingText},
		"second screen":            {screenText, screenText},
		"title":                    {"a\x1b]0;title\ab", "ab"},
		"clipboard":                {"a\x1b]52;c;aGk=\x1b\\b", "ab"},
		"hyperlink":                {"\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "text"},
		"device control":           {"a\x1bP$qm\x1b\\b", "ab"},
		"queries":                  {"\x1b[c\x1b[>c\x1b[6n\x1b[?6n\x1b[5n\x1b[x\x1bZ\x05\x1b[>q\x1b[?1$p", ""},
		"window":                   {"\x1b[21t\x1b[8;1;1t", ""},
		"printing":                 {"\x1b[5i", ""},
		"mouse, focus and pasting": {"\x1b[?1000h\x1b[?1004h\x1b[?2004h\x1b[?1006;1049;1003h", "\x1b[?1049h"},
		"keyboard":                 {"\x1b[>4;2m\x1b[>1u\x1b[=1u", ""},
		"controls of 8 bits":       {"a\u009b6n\u009d0;x\u009cb", "a6n0;xb"},
		"aborted sequence":         {"\x1b[1\x18a\x1b]0;\x1ab", "ab"},
		"control in a sequence":    {"\x1b[\r1mx", "\r\x1b[1mx"},
		"restarted sequence":       {"\x1b[1\x1b[2mx", "\x1b[2mx"},
		"no UTF-8":                 {"a\xffb\xe2\x82", "a\uFFFDb"},
		"other controls":           {"a\x00\x7f\x01b", "ab"},
		"long sequence":            {"\x1b[" + strings.Repeat("1", 1000) + "mx", "x"},
		"string before another":    {"a\x1b]0;t\x1b[1mb\x1b]0;\x1b\x1b\\c\x1bP\x1b]0;t\ad", "a\x1b[1mbcd"},
		"string without an end":    {"\x1b]0;" + strings.Repeat("t", maxString-2) + "rm", "rm"},
		"long numbers": {
			"\x1b[9999b\x1b[10000b\x1b[1;00001H\x1b[?00025l\x1b[99999999999999999999C", "\x1b[9999b",
		},
		"erased history":     {"\x1b[3J\x1b[03J\x1b[2;3J\x1b[?3J\x1b[2J\x1b[3K", "\x1b[2J\x1b[3K"},
		"reset":              {"a\x1bcb", "a" + softReset + "b"},
		"tab stops":          {"\x1b[3g\x1b[g\x1b[5G\x1bH\ta", "\x1b[5G\ta"},
		"long intermediates": {"\x1b" + strings.Repeat(" ", 1000) + "Fx", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, len(tt.in)} {
				var out bytes.Buffer
				f := &Filter{W: &out}
				for piece := range slices.Chunk([]byte(tt.in), size) {
					if n, err := f.Write(piece); n != len(piece) || err != nil {
						t.Fatal(n, err)
					}
				}
				if out.String() != tt.want {
					t.Errorf("pieces of %d bytes: %q, want %q", size, out.String(), tt.want)
				}
			}
		})
	}
}

// TestFilterKeepsScreen fails if a reader sees another screen than the user saw.
func TestFilterKeepsScreen(t *testing.T) {
	const session = "\x1b]0;vi\a\x1b[?1049h\x1b[?2004h\x1b[6n\x1b[2J\x1b[H\x1b[1mhello\x1b[0m\r\nworld" +
		"\x1b[5;10Hmiddle\x1b[3Dup\x1b[A\x1b[31mred\x1b[39m\x1b[K\x1b[2;4r\x1bM\x1b[L\x1b[?25l\x1b(0lqk\x1b(B\b\b#"
	show := func(filtered bool) string {
		term := vt10x.New(vt10x.WithSize(40, 10))
		var err error
		if filtered {
			_, err = (&Filter{W: term}).Write([]byte(session))
		} else {
			_, err = term.Write([]byte(session))
		}
		must(t, err)
		return term.String()
	}
	if got, want := show(true), show(false); got != want || !strings.Contains(want, "midupe") {
		t.Errorf("filtered:\n%s\nwant:\n%s", got, want)
	}
}

// TestResetEndsEveryMode fails if a recording leaves a mode in the terminal of who played it.
func TestResetEndsEveryMode(t *testing.T) {
	reset := map[string]bool{}
	for sequence := range strings.SplitSeq(Reset, "\x1b[") {
		private, ok := strings.CutPrefix(strings.TrimSuffix(sequence, "\x1b>"), "?")
		if !ok {
			continue
		}
		for mode := range strings.SplitSeq(private[:len(private)-1], ";") {
			reset[mode] = true
		}
	}
	for _, mode := range modes {
		switch mode {
		case 12: // the blinking of the cursor, which its style in Reset sets
		case 47, 1047, 1048: // the second screen and its cursor, as 1049
		default:
			if !reset[strconv.Itoa(mode)] {
				t.Errorf("%q does not reset the mode %d", Reset, mode)
			}
		}
	}
	if strings.Contains(Reset+softReset, "\x1bc") {
		t.Error("a reset removes the earlier lines of the reader's terminal")
	}
	for _, left := range []string{"\x1b[4h", "\x1b[?6h\x1b[3;4r", "\x1b[?1049h", "\x1b(0"} {
		term := vt10x.New(vt10x.WithSize(20, 5))
		_, err := fmt.Fprint(term, left, Reset, "\x1b[2J\x1b[Habc\x1b[Hxy")
		must(t, err)
		if got := strings.TrimSpace(term.String()); got != "xyc" {
			t.Errorf("after %q and Reset, the screen shows %q", left, got)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add([]byte("\x1b[1mx\x1b]0;t\a\x1bP\x1b\\\xe2\x82\xac\x1b[?1049;1000h"), 3)
	f.Add([]byte("\x1b\x1b[[\x1b]\x1b]\x18\x1b(0"), 1)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		filter := func(size int) []byte {
			var out bytes.Buffer
			w := &Filter{W: &out}
			for piece := range slices.Chunk(data, size) {
				_, err := w.Write(piece)
				must(t, err)
			}
			return out.Bytes()
		}
		whole := filter(len(data) + 1)
		if split := filter(max(size%16, 1)); !bytes.Equal(whole, split) {
			t.Errorf("%q, split: %q", whole, split)
		}
		if !utf8.Valid(whole) || bytes.Contains(whole, []byte("\x1b]")) || bytes.Contains(whole, []byte("\x1bP")) {
			t.Errorf("%q passes", whole)
		}
		var again bytes.Buffer
		_, err := (&Filter{W: &again}).Write(whole)
		if must(t, err); !bytes.Equal(again.Bytes(), whole) {
			t.Errorf("%q becomes %q when it is filtered again", whole, again.Bytes())
		}
	})
}

// clock is a writer that notes when what was written.
type clock struct {
	begun time.Time
	log   []string
}

func (c *clock) Write(p []byte) (int, error) {
	c.log = append(c.log, fmt.Sprintf("%s %q", time.Since(c.begun).Round(time.Millisecond), p))
	return len(p), nil
}

// session has an output at 1 s, 2 s, 12 s and 42 s.
func session(s *recording.Session) {
	for i, pause := range []time.Duration{1, 1, 10, 30} {
		<-time.After(pause * time.Second)
		_ = s.Output(1+i%2, fmt.Appendf(nil, "%d", i)) // Close returns the error
	}
}

func TestPlayerKeepsPauses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(p *Player)
		want   string
	}{
		"as recorded":   {func(*Player) {}, `1s "0", 2s "1", 12s "2", 42s "3"`},
		"twice as fast": {func(p *Player) { p.Speed = 2 }, `500ms "0", 1s "1", 6s "2", 21s "3"`},
		"half as fast":  {func(p *Player) { p.Speed = 0.5 }, `2s "0", 4s "1", 24s "2", 1m24s "3"`},
		"no pauses":     {func(p *Player) { p.Speed = 0 }, `0s "0", 0s "1", 0s "2", 0s "3"`},
		"short pauses":  {func(p *Player) { p.MaxPause = 2 * time.Second }, `1s "0", 2s "1", 4s "2", 6s "3"`},
		"from a time":   {func(p *Player) { p.From = 10 * time.Second }, `0s "0", 0s "1", 2s "2", 32s "3"`},
		"from the end":  {func(p *Player) { p.From = time.Hour }, `0s "0", 0s "1", 0s "2", 0s "3"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &Player{Open: record(t, recording.Info{}, session), Speed: 1}
				tt.change(p)
				out := &clock{begun: time.Now()}
				p.Out = out
				must(t, p.Play(t.Context()))
				if got := strings.Join(out.log, ", "); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		})
	}
}

// rewound is what the clock notes of a terminal that is reset.
var rewound = fmt.Sprintf("%q", Reset+"\x1b[H\x1b[2J")

type press struct {
	at  time.Duration
	key Key
}

func TestKeysControlPlayer(t *testing.T) {
	for name, tt := range map[string]struct {
		presses []press
		want    string
	}{
		"pause": {
			[]press{{1500 * time.Millisecond, Pause}, {11500 * time.Millisecond, Pause}},
			`1s "0", 12s "1", 22s "2", 52s "3"`,
		},
		"forward": {[]press{{5 * time.Second, Forward}}, `1s "0", 2s "1", 5s "2", 32s "3"`},
		"forward while it is paused": {
			[]press{{5 * time.Second, Pause}, {6 * time.Second, Forward}, {7 * time.Second, Pause}},
			`1s "0", 2s "1", 6s "2", 34s "3"`,
		},
		"back": {
			[]press{{13 * time.Second, Back}},
			`1s "0", 2s "1", 12s "2", 13s ` + rewound + `, 13s "0", 13s "1", 22s "2", 52s "3"`,
		},
		"back over the start": {
			[]press{{1500 * time.Millisecond, Back}},
			`1s "0", 1.5s ` + rewound + `, 2.5s "0", 3.5s "1", 13.5s "2", 43.5s "3"`,
		},
		"faster and slower": {
			[]press{{2 * time.Second, Faster}, {4 * time.Second, Slower}},
			`1s "0", 2s "1", 10s "2", 40s "3"`,
		},
		"quit": {[]press{{3 * time.Second, Quit}}, `1s "0", 2s "1"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := make(chan Key)
				out := &clock{begun: time.Now()}
				p := &Player{Open: record(t, recording.Info{}, session), Speed: 1, Out: out, Keys: keys}
				out.begun = time.Now()
				go func() {
					for _, k := range tt.presses {
						time.Sleep(k.at - time.Since(out.begun) + time.Microsecond)
						keys <- k.key
					}
				}()
				must(t, p.Play(t.Context()))
				if got := strings.Join(out.log, ", "); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestPlayEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := record(t, recording.Info{}, session)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		err := (&Player{Open: open, Speed: 1, Out: &clock{}}).Play(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

func TestParseKeys(t *testing.T) {
	got := ParseKeys([]byte(" \x1b[C\x1bOD\x1b[Ax+=-q\x03\x1b"))
	want := []Key{Pause, Forward, Back, Faster, Faster, Slower, Quit, Quit}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// export returns the header and the events of an exported file.
func export(
	t *testing.T, open func(context.Context) (*recording.Reader, error), options ExportOptions,
) (header map[string]any, events string) {
	t.Helper()
	r, err := open(t.Context())
	must(t, err)
	var out bytes.Buffer
	must(t, Export(t.Context(), &out, r, options))
	for _, c := range out.String() {
		if c != '\n' && unicode.IsControl(c) {
			t.Errorf("the file has the control %q", c)
		}
	}
	first, rest, _ := strings.Cut(out.String(), "\n")
	must(t, json.Unmarshal([]byte(first), &header))
	var lines []string
	for line := range strings.Lines(rest) {
		var e [3]any
		must(t, json.Unmarshal([]byte(line), &e))
		lines = append(lines, fmt.Sprintf("%v %q", e[1], e[2]))
	}
	return header, strings.Join(lines, ", ")
}

// TestExportIsForPlayers fails if a player of asciicast shows other text than a terminal did.
func TestExportIsForPlayers(t *testing.T) {
	for name, tt := range map[string]struct {
		info recording.Info
		do   func(s *recording.Session) error
		want string
	}{
		"nothing": {recording.Info{}, func(*recording.Session) error { return nil }, ""},
		"a character in pieces": {recording.Info{TTY: true}, func(s *recording.Session) error {
			return errors.Join(s.Output(1, []byte("a\xe2\x82")), s.Output(2, []byte("e\n")), s.Output(1, []byte("\xacb\n")))
		}, `o "a", o "e\n", o "€", o "b\n"`},
		"no UTF-8": {recording.Info{TTY: true}, func(s *recording.Session) error {
			return errors.Join(s.Output(1, []byte("a\xffb")), s.Output(1, []byte("c\xe2")))
		}, `o "a�b", o "c", o "�"`},
		"lines without a terminal": {recording.Info{}, func(s *recording.Session) error {
			return s.Output(1, []byte("a\nb\r\nc"))
		}, `o "a\r\nb\r\nc"`},
		"input": {recording.Info{RecordsInput: true}, func(s *recording.Session) error {
			return s.Input([]byte("ls\n"))
		}, `i "ls\n"`},
		"sizes": {recording.Info{TTY: true}, func(s *recording.Session) error {
			return errors.Join(s.Output(1, []byte("$ ")), s.Resize(100, 30), s.Resize(90, 20))
		}, `o "$ ", r "100x30", r "90x20"`},
		"sizes that no player shows": {recording.Info{TTY: true}, func(s *recording.Session) error {
			return errors.Join(s.Resize(0, 0), s.Resize(65535, 0), s.Resize(65535, 65535), s.Resize(1, 1001),
				s.Output(1, []byte("a")))
		}, `r "1000x1000", r "1x1000", o "a"`},
		"controls of 8 bits": {recording.Info{TTY: true, Command: []string{"\x7f\u009b"}}, func(s *recording.Session) error {
			return s.Output(1, []byte("a\u0080\u009b6n\u009fb\u00a0\x7f\x1b"))
		}, `o "a\u0080\u009b6n\u009fb\u00a0\x7f\x1b"`},
		"success": {recording.Info{}, func(s *recording.Session) error {
			return s.Exit([]byte(`{"status":"Success"}`))
		}, `m "exit: Success"`},
		"failure": {recording.Info{}, func(s *recording.Session) error {
			return errors.Join(s.Exit([]byte(`{"status":"Failure","message":`)), s.Exit([]byte(`"code 2"}`)))
		}, `m "exit: Failure: code 2"`},
		"text as a status": {recording.Info{}, func(s *recording.Session) error {
			return s.Exit([]byte("killed"))
		}, `m "exit: \"killed\""`},
		"port-forward": {recording.Info{Kind: recording.PortForward}, func(s *recording.Session) error {
			return s.Transferred(1, 2)
		}, `m "bytes from the client: 1, to the client: 2"`},
	} {
		t.Run(name, func(t *testing.T) {
			header, events := export(t, record(t, tt.info, func(s *recording.Session) { must(t, tt.do(s)) }), ExportOptions{})
			if events != tt.want {
				t.Errorf("%s, want %s", events, tt.want)
			}
			width, height := 80.0, 24.0
			switch name {
			case "sizes":
				width, height = 100, 30
			case "sizes that no player shows":
				width, height = 1000, 1000
			}
			if header["version"] != 2.0 || header["width"] != width || header["height"] != height {
				t.Errorf("header %v", header)
			}
		})
	}
}

// TestFilteredExport fails if a recorded user can use the terminal in which a filtered file is played.
func TestFilteredExport(t *testing.T) {
	open := record(t, recording.Info{RecordsInput: true}, func(s *recording.Session) {
		must(t, errors.Join(s.Output(1, []byte("a\x1b]52;c;")), s.Output(2, []byte("aGk=\a")),
			s.Output(1, []byte("\x1b[1mb\x1b[6n\xe2")), s.Input([]byte("\x1b[A")), s.Output(1, []byte("\x82\xac\n\u009b5n"))))
	})
	const want = `o "a", o "\x1b[1mb", i "\x1b[A", o "€", o "\r\n5n"`
	if _, events := export(t, open, ExportOptions{Filter: true}); events != want {
		t.Errorf("%s, want %s", events, want)
	}
}

// TestExportOfCutRecording fails if what is left of a cut recording cannot be shown.
func TestExportOfCutRecording(t *testing.T) {
	signer, keys := storetest.NewSigner(t)
	store := &storetest.Memory{}
	s, err := recording.New(recording.Config{Store: store, Signer: signer}).Begin(t.Context(), recording.Info{})
	must(t, err)
	must(t, s.Output(1, bytes.Repeat([]byte("0123456789abcdef"), 1<<20/16)))
	must(t, s.Close())
	parts, err := store.Parts(t.Context(), s.ID())
	must(t, err)
	store.Set(s.ID(), len(parts)-1, nil)
	r, err := recording.Open(t.Context(), store, s.ID(), keys)
	must(t, err)
	var out bytes.Buffer
	var fault *recording.Fault
	if err := Export(t.Context(), &out, r, ExportOptions{}); !errors.As(err, &fault) || fault.Kind != recording.Cut {
		t.Errorf("%v, want that it is cut", err)
	}
	if n := strings.Count(out.String(), "0123456789abcdef"); n < 50_000 {
		t.Errorf("only %d lines of output are exported", n)
	}
	store.Set(s.ID(), 1, []byte("x\n"))
	r, err = recording.Open(t.Context(), store, s.ID(), keys)
	must(t, err)
	if err := Export(t.Context(), &out, r, ExportOptions{}); !errors.As(err, &fault) || fault.Kind != recording.Changed {
		t.Errorf("%v, want that it is changed", err)
	}
}
