package recording

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FaultKind is what is wrong with a recording.
type FaultKind string

// The kinds of a Fault.
const (
	// Cut means that the recording has no end. Its session may still run. Some of the last parts may not be stored,
	// because a Session writes them at the same time.
	Cut       FaultKind = "cut"
	Missing   FaultKind = "missing"   // there are later parts, so that it was stored
	Changed   FaultKind = "changed"   // the part does not have its signature
	Reordered FaultKind = "reordered" // the part has another place, or belongs to another recording
	Unsigned  FaultKind = "unsigned"  // the key of the signature is unknown
)

// Fault is the error of a part of a recording.
type Fault struct {
	Kind FaultKind
	Part int
	Why  string
}

func (f *Fault) Error() string {
	if f.Kind == Cut {
		return "the recording is cut: " + f.Why
	}
	return fmt.Sprintf("part %d is %s: %s", f.Part, f.Kind, f.Why)
}

// part is a part that was parsed, and verified if there are keys.
type part struct {
	number   int
	id       string // the recording
	previous string // the digest of the part before in hexadecimal, or empty in part 0
	header   *Info  // of part 0
	events   []byte // lines
	end      int    // the number of parts, in the last one
	digest   [sha256.Size]byte
}

// parsePart parses a part and verifies its signature, unless keys is nil. It does not verify the place of the part,
// whose expected number is only for the Fault.
func parsePart(data []byte, expected int, keys Keys) (*part, *Fault) {
	changed := func(why error) *Fault { return &Fault{Changed, expected, why.Error()} }
	content, signature := cutLastLine(data)
	if signature == nil {
		return nil, changed(errors.New("it has no signature"))
	}
	if keys != nil {
		keyID, ok, err := verifyLine(content, signature, keys)
		switch {
		case err != nil:
			return nil, changed(err)
		case keys[keyID] == nil:
			return nil, &Fault{Unsigned, expected, fmt.Sprintf("its signature is by the unknown key %.64q", keyID)}
		case !ok:
			return nil, changed(errors.New("its signature belongs to other bytes"))
		}
	}
	p := &part{digest: sha256.Sum256(data)}
	if err := p.parse(content); err != nil {
		return nil, changed(err)
	}
	return p, nil
}

// cutLastLine splits data before its last line. The line is nil if data does not end with one.
func cutLastLine(data []byte) (before, line []byte) {
	body, ok := bytes.CutSuffix(data, []byte("\n"))
	if !ok || len(body) == 0 {
		return data, nil
	}
	at := bytes.LastIndexByte(body, '\n') + 1
	return data[:at], body[at:]
}

// verifyLine returns the key of a signature, and whether the signature belongs to content. A signature does not cover
// its own line, so the line must be the only one that Session.seal could have written.
func verifyLine(content, line []byte, keys Keys) (keyID string, ok bool, err error) {
	e, err := parseEvent(line)
	if err != nil || e.Type != typeSignature {
		return "", false, errors.New("it has no signature")
	}
	keyID, text, _ := strings.Cut(string(e.Data), " ")
	signature, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return keyID, false, errors.New("its signature is not in base64")
	}
	if keys[keyID] == nil {
		return keyID, false, nil
	}
	want := AppendEvent(nil, lastTime(content), typeSignature, signatureText(keyID, signature))
	if !bytes.Equal(line, bytes.TrimSuffix(want, []byte("\n"))) {
		return keyID, false, errors.New("the line of its signature was changed")
	}
	digest := sha256.Sum256(content)
	return keyID, keys.verify(keyID, digest[:], signature), nil
}

// lastTime returns the time of the last event of content, or 0 if it has only a header.
func lastTime(content []byte) time.Duration {
	_, last := cutLastLine(content)
	e, err := parseEvent(last)
	if err != nil {
		return 0
	}
	return e.Time
}

// parse reads the first and the last line of content, which is a part without its signature.
func (p *part) parse(content []byte) error {
	first, rest, ok := bytes.Cut(content, []byte("\n"))
	if !ok {
		return errors.New("it is empty")
	}
	p.events = rest
	if bytes.HasPrefix(first, []byte("{")) {
		var h header
		if err := json.Unmarshal(first, &h); err != nil || h.Info == nil || h.Version != 2 {
			return errors.New("its header is no header of a recording")
		}
		p.header, p.id = h.Info, h.Info.ID
		return nil
	}
	e, err := parseEvent(first)
	if err != nil || e.Type != typePart {
		return errors.New("it does not begin with its number")
	}
	number, place, _ := strings.Cut(string(e.Data), " ")
	p.previous, p.id, _ = strings.Cut(place, " ")
	p.number, err = strconv.Atoi(number)
	if err != nil || p.number < 1 || len(p.previous) != hex.EncodedLen(sha256.Size) {
		return errors.New("its number or the digest of the part before it is invalid")
	}
	return p.parseEnd()
}

// parseEnd removes the event that ends the recording from p.events, if it is the last one.
func (p *part) parseEnd() error {
	before, line := cutLastLine(p.events)
	if line == nil {
		return nil
	}
	e, err := parseEvent(line)
	if err != nil {
		return err
	}
	if e.Type == typeEnd {
		if p.end, err = strconv.Atoi(string(e.Data)); err != nil || p.end != p.number+1 {
			return errors.New("it has an invalid number of parts")
		}
		p.events = before
	}
	return nil
}

// chain verifies that parts follow each other.
type chain struct {
	id       string
	keys     Keys
	last     int    // the greatest number of a stored part
	next     int    // the number of the next part
	previous string // the digest of the last part, or empty if it had a fault
	ended    bool
	gaps     []Fault // missing parts that may never have been stored
}

func newChain(id string, keys Keys, stored []Part) chain {
	c := chain{id: id, keys: keys}
	for _, p := range stored {
		c.last = max(c.last, p.Number)
	}
	return c
}

// add verifies the next part. After a Fault, the part after it is not compared with it.
func (c *chain) add(data []byte) (*part, *Fault) {
	expected, previous := c.next, c.previous
	c.next, c.previous = c.next+1, ""
	p, fault := parsePart(data, expected, c.keys)
	if fault != nil {
		return nil, fault
	}
	reordered := func(format string, args ...any) (*part, *Fault) {
		return nil, &Fault{Reordered, expected, fmt.Sprintf(format, args...)}
	}
	switch {
	case c.ended:
		return reordered("it comes after the end")
	case p.number != expected:
		return reordered("it is part %d", p.number)
	case p.id != c.id: // a digest of the part before proves nothing after a gap
		return reordered("it belongs to recording %.64q", p.id)
	case previous != "" && p.previous != previous:
		return reordered("it does not follow part %d, or that was changed", expected-1)
	}
	c.previous = hex.EncodeToString(p.digest[:])
	c.ended = p.end > 0
	return p, nil
}

// skipTo skips the missing parts before a number. It returns a Fault if they were stored. A Session stores part n only
// after part n-maxInFlight, so later ones may be missing after a kill. Whether they are a Fault, end decides.
func (c *chain) skipTo(number int) *Fault {
	if number == c.next {
		return nil
	}
	gap := Fault{Missing, c.next, fmt.Sprintf("the next part is %d", number)}
	c.next, c.previous = number, ""
	if gap.Part == 0 || gap.Part <= c.last-maxInFlight { // Recorder.Begin stores part 0
		return &gap
	}
	c.gaps = append(c.gaps, gap)
	return nil
}

// end returns the remaining faults: that the recording has no end, or which parts are missing before its end.
func (c *chain) end() []Fault {
	if c.ended {
		return c.gaps
	}
	cut := Fault{Cut, c.next, "it has no end, or its session still runs"}
	if len(c.gaps) > 0 {
		cut.Part = c.gaps[0].Part
		cut.Why += fmt.Sprintf("; part %d and maybe later ones were not stored", cut.Part)
	}
	return []Fault{cut}
}
