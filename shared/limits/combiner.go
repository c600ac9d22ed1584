package limits

import (
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// DefaultUnidentifiedRate is the number of records per second of unidentified callers that are written separately.
	DefaultUnidentifiedRate = 1
	// unidentifiedBurst is how many seconds of that rate may be used at once.
	unidentifiedBurst = 60
	// CombineEvery is the interval after which one summary represents all records that were only counted.
	CombineEvery = 10 * time.Second
	// MaxUnidentified is the number of bytes of each text of an unidentified caller in a record.
	MaxUnidentified = 256

	maxSummarySources = 16
)

// Combiner bounds the records of all unidentified callers together, such as audit events or lines of a log. Beyond a
// rate, it counts them for a summary. It is safe for concurrent use.
type Combiner[T any] struct {
	limiter *rate.Limiter
	flush   func() // writes the summary; nil if a later record does

	mu      sync.Mutex
	counted *Summary[T] // nil for none
	began   time.Time   // the first of the counted records
	timer   *time.Timer
}

// Summary represents records that were only counted.
type Summary[T any] struct {
	First   T
	Last    time.Time
	Count   int
	Sources []string // at most 16, without duplicates
}

// NewCombiner returns a Combiner for a number of separate records per second, with a burst of 60 times that. 0 means
// DefaultUnidentifiedRate. flush, if not nil, is called CombineEvery after the first counted record.
func NewCombiner[T any](perSecond int, flush func()) *Combiner[T] {
	if perSecond <= 0 {
		perSecond = DefaultUnidentifiedRate
	}
	return &Combiner[T]{limiter: rate.NewLimiter(rate.Limit(perSecond), perSecond*unidentifiedBurst), flush: flush}
}

// Allows reports whether a record may be written separately. Otherwise it counts the record. source may be "".
func (c *Combiner[T]) Allows(record T, source string, now time.Time) bool {
	if c.limiter.AllowN(now, 1) {
		return true
	}
	c.Count(record, source, now)
	return false
}

// Count counts a record for the summary. source may be "".
func (c *Combiner[T]) Count(record T, source string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted == nil {
		c.counted, c.began = &Summary[T]{First: record}, now
		if c.flush != nil {
			c.timer = time.AfterFunc(CombineEvery, c.flush)
		}
	}
	s := c.counted
	s.Count++
	s.Last = now
	if source != "" && len(s.Sources) < maxSummarySources && !slices.Contains(s.Sources, source) {
		s.Sources = append(s.Sources, source)
	}
}

// Postpone makes flush run again after CombineEvery, if records were counted.
func (c *Combiner[T]) Postpone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Reset(CombineEvery)
	}
}

// Summary returns the counted records, and resets their count. It returns nil without any, or if the first is younger
// than minAge.
func (c *Combiner[T]) Summary(now time.Time, minAge time.Duration) *Summary[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted == nil || now.Sub(c.began) < minAge {
		return nil
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	s := c.counted
	c.counted, c.timer = nil, nil
	return s
}

// Cut returns the first limit bytes of s. It shortens invalid UTF-8, which JSON would escape with six bytes each.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:limit], "\uFFFD") + "…"
}
