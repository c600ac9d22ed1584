// Package replay shows recordings: Player in a terminal, and Export as a file for players of asciicast.
package replay

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/clusterpass/clusterpass/shared/recording"
)

// Key is what a user wants of a Player.
type Key int

// The keys.
const (
	Pause Key = iota // or go on
	Forward
	Back
	Faster
	Slower
	Quit
)

// ParseKeys returns the keys in the bytes that a terminal sends. Other bytes are ignored.
func ParseKeys(p []byte) []Key {
	var keys []Key
	for len(p) > 0 {
		if len(p) >= 3 && p[0] == escape && (p[1] == '[' || p[1] == 'O') { // arrows
			switch p[2] {
			case 'C':
				keys = append(keys, Forward)
			case 'D':
				keys = append(keys, Back)
			}
			p = p[3:]
			continue
		}
		const interrupt = 3 // Ctrl-C in raw mode
		switch p[0] {
		case ' ':
			keys = append(keys, Pause)
		case '+', '=':
			keys = append(keys, Faster)
		case '-':
			keys = append(keys, Slower)
		case 'q', interrupt:
			keys = append(keys, Quit)
		}
		p = p[1:]
	}
	return keys
}

const (
	seekStep = 10 * time.Second
	maxSpeed = 1 << 10
	minSpeed = 1.0 / 16
)

// Player shows the output of a recording with its pauses. It is not safe for concurrent use.
type Player struct {
	// Open opens the recording at its start. Play calls it again to go back.
	Open func(ctx context.Context) (*recording.Reader, error)
	Out  io.Writer
	// NewLines adds a carriage return to each line feed, for a terminal in raw mode. It has no effect on recordings of a
	// terminal, whose lines have one.
	NewLines bool
	Speed    float64       // 2 halves the pauses; 0 means no pauses
	MaxPause time.Duration // the longest pause of the recording, before Speed; 0 means no limit
	From     time.Duration // earlier output is shown at once
	Keys     <-chan Key    // nil for none

	reader   *recording.Reader
	filter   *Filter
	position time.Duration
	seek     time.Duration // events before are shown at once
	paused   bool
}

// errQuit means that the user wants to end.
var errQuit = errors.New("quit")

// Play plays the recording until its end. It returns nil after the end and after Quit, and otherwise the error of the
// Reader or of Out. A Fault of the kind recording.Cut comes after all events.
func (p *Player) Play(ctx context.Context) error {
	if err := p.rewind(ctx); err != nil {
		return err
	}
	p.seek = p.From
	for {
		e, err := p.reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch err := p.waitFor(ctx, e.Time); {
		case errors.Is(err, errQuit):
			return nil
		case errors.Is(err, errRewound):
			continue // e belongs to the old position
		case err != nil:
			return err
		}
		p.position = max(p.position, e.Time)
		if e.Type == recording.Output || e.Type == recording.Stderr {
			if _, err := p.filter.Write(e.Data); err != nil {
				return err
			}
		}
	}
}

// errRewound means that the reader is at its start again.
var errRewound = errors.New("rewound")

func (p *Player) rewind(ctx context.Context) error {
	r, err := p.Open(ctx)
	if err != nil {
		return err
	}
	p.reader, p.position = r, 0
	p.filter = &Filter{W: p.Out, NewLines: p.NewLines && !r.Info().TTY}
	return nil
}

// waitFor waits until the time of an event, and obeys keys meanwhile.
func (p *Player) waitFor(ctx context.Context, until time.Duration) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		pause := p.pauseBefore(until)
		if pause == 0 && (!p.paused || until <= p.seek) {
			select {
			case k := <-p.Keys:
				if err := p.obey(ctx, k); err != nil {
					return err
				}
				continue
			default:
				return nil
			}
		}
		if err := p.sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// pauseBefore returns how long to wait for an event. It moves the position over what MaxPause shortens.
func (p *Player) pauseBefore(until time.Duration) time.Duration {
	if until <= p.seek || until <= p.position || p.Speed == 0 {
		return 0
	}
	p.position = max(p.position, p.seek)
	if p.MaxPause > 0 && until-p.position > p.MaxPause {
		p.position = until - p.MaxPause
	}
	return max(time.Duration(float64(until-p.position)/p.Speed), 1)
}

// sleep waits for d, or for a key. While the player is paused, it waits for a key alone.
func (p *Player) sleep(ctx context.Context, d time.Duration) error {
	begun := time.Now()
	var due <-chan time.Time
	if !p.paused {
		t := time.NewTimer(d)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-due:
		p.pass(d)
		return nil
	case k := <-p.Keys:
		if !p.paused {
			p.pass(min(time.Since(begun), d))
		}
		return p.obey(ctx, k)
	}
}

// pass moves the position by a time on the reader's clock.
func (p *Player) pass(d time.Duration) { p.position += time.Duration(float64(d)*p.Speed) + 1 }

func (p *Player) obey(ctx context.Context, k Key) error {
	switch k {
	case Pause:
		p.paused = !p.paused
	case Forward:
		p.seek = p.position + seekStep
	case Back:
		target := max(p.position-seekStep, 0)
		if _, err := io.WriteString(p.Out, Reset+clearScreen); err != nil {
			return err
		}
		if err := p.rewind(ctx); err != nil {
			return err
		}
		p.seek = target
		return errRewound
	case Faster:
		p.Speed = min(p.Speed*2, maxSpeed)
	case Slower:
		p.Speed = max(p.Speed/2, minSpeed)
	case Quit:
		return errQuit
	}
	return nil
}
