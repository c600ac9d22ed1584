package recording

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clusterpass/clusterpass/shared/utf8tail"
)

// Type is the code of an event. Players of asciicast ignore the codes that they do not know.
type Type string

// The types of events that Reader returns.
const (
	Output      Type = "o"
	Stderr      Type = "stderr"
	Input       Type = "i"
	Resize      Type = "r"
	Exit        Type = "exit"        // a metav1.Status in JSON
	Transferred Type = "transferred" // counts of bytes of a port-forward
)

// Marker is the type of a marker of asciicast. Recordings have none, but exported files.
const Marker Type = "m"

// The types of events that belong to the chain of parts.
const (
	typePart      Type = "part"
	typeEnd       Type = "end"
	typeSignature Type = "signature"
)

// base64Suffix is added to the code of an event whose data is in base64.
const base64Suffix = ".base64"

const (
	// pieceSize bounds the data of one event.
	pieceSize = 16 << 10
	maxEvent  = (maxGrowth+1)*pieceSize + 64
)

// header is the first line of a recording: the header of asciicast v2 with Info.
type header struct {
	Version   int    `json:"version"`
	Width     uint16 `json:"width"`
	Height    uint16 `json:"height"`
	Timestamp int64  `json:"timestamp"`
	Title     string `json:"title,omitempty"`
	Info      *Info  `json:"clusterpass"`
}

// The size of a terminal that is not known.
const (
	DefaultWidth  = 80
	DefaultHeight = 24
)

// Header returns the first line of a file in asciicast v2, without its end.
func (i *Info) Header(width, height uint16) ([]byte, error) {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false) // each < would have six bytes
	err := e.Encode(header{
		Version: 2, Width: width, Height: height, Timestamp: i.Start.Unix(), Title: i.Title(), Info: i,
	})
	return bytes.TrimSuffix(line.Bytes(), []byte("\n")), err
}

// maxCommand is the maximum size of Info.Command in a header in JSON, with quotation marks, commas and escapes.
const maxCommand = 16 << 10

// limitCommand shortens Command to maxCommand, and then sets CommandSHA256. It does not change the old array.
func (i *Info) limitCommand() {
	const perArgument = 3
	space := maxCommand
	for n, argument := range i.Command {
		space -= perArgument
		fits := escapedPrefix(argument, &space)
		if fits == len(argument) && space >= 0 {
			continue
		}
		hash := sha256.New()
		for _, a := range i.Command {
			_, _ = hash.Write(append([]byte(a), 0))
		}
		i.CommandSHA256 = hex.EncodeToString(hash.Sum(nil))
		i.Command = slices.Clone(i.Command[:n])
		if fits > 0 {
			i.Command = append(i.Command, argument[:fits])
		}
		return
	}
}

// escapedPrefix returns how many bytes of text a string of JSON with *space bytes may have. It subtracts their size.
func escapedPrefix(text string, space *int) int {
	const escape = 6 // bytes of \u0000
	for at, r := range text {
		size := max(1, utf8.RuneLen(r))
		switch {
		case r < ' ' || r == '\u2028' || r == '\u2029' || r == utf8.RuneError:
			size = escape
		case r == '"' || r == '\\':
			size = 2
		}
		if size > *space {
			return at
		}
		*space -= size
	}
	return len(text)
}

// Title returns the kind of the session and where it is.
func (i *Info) Title() string {
	where := []string{i.Cluster}
	for _, s := range []string{i.Namespace, i.Pod, i.Container} {
		if s != "" {
			where = append(where, s)
		}
	}
	return i.Kind + " " + strings.Join(where, "/")
}

// appendEvents appends events with data, which must not be empty and has at most pieceSize bytes. A character that the
// ends of data cut in two gets events of its own, so that the rest stays text.
func appendEvents(b []byte, t time.Duration, typ Type, data []byte) []byte {
	lead := 0
	for lead < len(data) && !utf8.RuneStart(data[lead]) {
		lead++
	}
	if 0 < lead && lead < utf8.UTFMax && lead < len(data) {
		b = appendEvent(b, t, typ, data[:lead], maxGrowth)
		data = data[lead:]
	}
	if tail := utf8tail.Len(data); 0 < tail && tail < len(data) {
		b = appendEvent(b, t, typ, data[:len(data)-tail], maxGrowth)
		data = data[len(data)-tail:]
	}
	return appendEvent(b, t, typ, data, maxGrowth)
}

// AppendEvent appends the line of one event to b. Data that is no UTF-8 is encoded in base64.
func AppendEvent(b []byte, t time.Duration, typ Type, data []byte) []byte {
	const most = 6 // bytes of an escape
	return appendEvent(b, t, typ, data, most)
}

// maxGrowth is how many times longer data may become by escapes. Else it is encoded in base64, such as many zeros.
const maxGrowth = 3

func appendEvent(b []byte, t time.Duration, typ Type, data []byte, growth int) []byte {
	start := len(b)
	b = appendStart(b, t, typ)
	if text, ok := appendJSONString(append(b, `",`...), data, growth); ok {
		return append(text, "]\n"...)
	}
	b = append(appendStart(b[:start], t, typ), base64Suffix+`","`...)
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, "\"]\n"...)
}

// appendStart appends the time and the code without the quotation mark that ends it.
func appendStart(b []byte, t time.Duration, typ Type) []byte {
	b = append(b, '[')
	b = strconv.AppendInt(b, int64(t/time.Second), 10)
	b = append(b, '.')
	micros := strconv.AppendInt(nil, int64(time.Second+t%time.Second)/int64(time.Microsecond), 10)
	b = append(b, micros[1:]...)
	b = append(b, `,"`...)
	return append(b, typ...)
}

// plainLen returns the number of bytes before the first one that is no ASCII, or that JSON strings do not contain as it
// is. It compares eight bytes at once.
func plainLen(p []byte) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	i := 0
	for ; i+8 <= len(p); i += 8 {
		x := binary.LittleEndian.Uint64(p[i:])
		quote, backslash := x^'"'*ones, x^'\\'*ones
		// Each subtraction sets the high bit of the first byte that matches. Only later bytes may be set wrongly.
		found := (x | (x-' '*ones)&^x | (quote-ones)&^quote | (backslash-ones)&^backslash) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(p); i++ {
		if c := p[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// appendJSONString appends p as a string of JSON. It returns false if p is no UTF-8, or if the string would be growth
// times longer.
func appendJSONString(b, p []byte, growth int) ([]byte, bool) {
	limit := len(b) + 2 + growth*len(p)
	b = append(b, '"')
	written := 0
	for i := 0; ; {
		i += plainLen(p[i:])
		if i == len(p) {
			break
		}
		if c := p[i]; c < utf8.RuneSelf {
			b = appendEscape(append(b, p[written:i]...), c)
			i++
			written = i
			if len(b) > limit {
				return b, false
			}
			continue
		}
		for i < len(p) && p[i] >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(p[i:])
			if r == utf8.RuneError && size == 1 {
				return b, false
			}
			i += size
		}
	}
	b = append(b, p[written:]...)
	return append(b, '"'), true
}

func appendEscape(b []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// Event is one event of a recording.
type Event struct {
	Time          time.Duration // since the start
	Type          Type
	Data          []byte // of Output, Stderr, Input and Exit
	Width, Height uint16 // of Resize
	In, Out       int64  // of Transferred: bytes from and to the client
}

// parseEvent parses a line. Data of the types of the chain is in Event.Data.
func parseEvent(line []byte) (Event, error) {
	var fields []json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return Event{}, fmt.Errorf("event of a recording: %w", err)
	}
	var (
		seconds    float64
		code, data string
	)
	if len(fields) != 3 {
		return Event{}, fmt.Errorf("event of a recording: it has %d fields; want 3", len(fields))
	}
	for i, to := range []any{&seconds, &code, &data} {
		if err := json.Unmarshal(fields[i], to); err != nil {
			return Event{}, fmt.Errorf("event of a recording: %w", err)
		}
	}
	const maxSeconds = 1e9 // more than 30 years; greater ones do not fit into a Duration
	if seconds < 0 || seconds > maxSeconds {
		return Event{}, fmt.Errorf("event of a recording: the time %g is out of range", seconds)
	}
	e := Event{Time: time.Duration(seconds*1e6+0.5) * time.Microsecond, Type: Type(code), Data: []byte(data)}
	if plain, ok := strings.CutSuffix(code, base64Suffix); ok {
		var err error
		if e.Data, err = base64.StdEncoding.DecodeString(data); err != nil {
			return Event{}, fmt.Errorf("event of a recording: %w", err)
		}
		e.Type = Type(plain)
	}
	return e, e.parseNumbers()
}

func (e *Event) parseNumbers() (err error) {
	switch e.Type {
	case Resize:
		_, err = fmt.Sscanf(string(e.Data), "%dx%d", &e.Width, &e.Height)
	case Transferred:
		_, err = fmt.Sscanf(string(e.Data), "in=%d out=%d", &e.In, &e.Out)
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("event %s of a recording: %w", e.Type, err)
	}
	e.Data = nil
	return nil
}
