package limits

import (
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// maxSources bounds the memory of a SourceRate. A forgotten source starts anew with all its events.
const maxSources = 16_384

// SourceRate limits how often each source may do something. It is safe for concurrent use.
type SourceRate struct {
	perMinute int
	now       func() time.Time

	mu      sync.Mutex // makes looking a bucket up and adding it one step
	buckets *lru.Cache[Source, *rate.Limiter]
}

// NewSourceRate allows each source perMinute events, also at once. 0 means no limit. A nil clock means time.Now.
func NewSourceRate(perMinute int, now func() time.Time) *SourceRate {
	buckets, err := lru.New[Source, *rate.Limiter](maxSources)
	if err != nil {
		panic(err) // maxSources is positive
	}
	if now == nil {
		now = time.Now
	}
	return &SourceRate{perMinute: perMinute, now: now, buckets: buckets}
}

// Allow counts an event of a source, unless it exceeds the limit. retryAfter is the time until the next is allowed. An
// unknown source has no limit.
func (l *SourceRate) Allow(s Source) (retryAfter time.Duration, ok bool) {
	if l.perMinute == 0 || !s.IsKnown() {
		return 0, true
	}
	now, bucket := l.now(), l.bucket(s)
	if bucket.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - bucket.TokensAt(now)
	return time.Duration(math.Ceil(missing / float64(bucket.Limit()) * float64(time.Second))), false
}

func (l *SourceRate) bucket(s Source) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, ok := l.buckets.Get(s); ok {
		return b
	}
	b := rate.NewLimiter(rate.Limit(float64(l.perMinute)/time.Minute.Seconds()), l.perMinute)
	l.buckets.Add(s, b)
	return b
}
