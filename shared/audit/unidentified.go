package audit

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// DefaultUnidentifiedRate is the number of events per second of unidentified clients that are written separately.
	DefaultUnidentifiedRate = 1
	// unidentifiedBurst is how many seconds of that rate may be used at once.
	unidentifiedBurst = 60
	// countEvery is the interval after which one summary represents all events that were only counted.
	countEvery = 10 * time.Second

	maxUnidentified = 256 // bytes of the URI and of every other text of an unidentified client
	maxClaim        = 256 // bytes of a claim that was not verified
)

// unidentified limits the events of all unidentified clients together. It is safe for concurrent use.
type unidentified struct {
	limiter *rate.Limiter
	flush   func() // writes the summary; nil if a later event of the log does

	mu        sync.Mutex
	first     *Event // of those that were only counted; nil for none
	count     uint64
	addresses []string
	last      metav1.MicroTime
	timer     *time.Timer
}

func newUnidentified(perSecond int, flush func()) *unidentified {
	if perSecond <= 0 {
		perSecond = DefaultUnidentifiedRate
	}
	return &unidentified{limiter: rate.NewLimiter(rate.Limit(perSecond), perSecond*unidentifiedBurst), flush: flush}
}

// allows shortens e and reports whether it may be written. Otherwise it counts e.
func (u *unidentified) allows(e *Event, now time.Time) bool {
	shorten(e)
	if u.limiter.AllowN(now, 1) {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.first == nil {
		u.first = e
		if u.flush != nil {
			u.timer = time.AfterFunc(countEvery, u.flush)
		}
	}
	u.count++
	u.last = e.StageTimestamp
	if n := len(e.SourceIPs); n > 0 && len(u.addresses) < maxIPs && !slices.Contains(u.addresses, e.SourceIPs[n-1]) {
		u.addresses = append(u.addresses, e.SourceIPs[n-1])
	}
	return false
}

// summary returns one event for the counted events, and resets their count. The event is nil without any, or if the
// first is younger than minAge.
func (u *unidentified) summary(now time.Time, minAge time.Duration) (e *Event, count int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.first == nil || now.Sub(u.first.StageTimestamp.Time) < minAge {
		return nil, 0
	}
	if u.timer != nil {
		u.timer.Stop()
	}
	summary := *u.first
	e, count = &summary, int(min(u.count, math.MaxInt))
	e.AuditID, e.SourceIPs, e.StageTimestamp = uuid.NewString(), u.addresses, u.last
	e.Annotations[CountAnnotation] = strconv.FormatUint(u.count, 10)
	for _, ofOne := range []string{DurationAnnotation, SentAnnotation, ReceivedAnnotation} {
		delete(e.Annotations, ofOne)
	}
	u.first, u.count, u.addresses, u.timer = nil, 0, nil, nil
	return e, count
}

func shorten(e *Event) {
	e.RequestURI, e.UserAgent = cut(e.RequestURI, maxUnidentified), cut(e.UserAgent, maxUnidentified)
	for k, v := range e.Annotations {
		e.Annotations[k] = cut(v, maxUnidentified)
	}
	if e.ResponseStatus != nil {
		e.ResponseStatus.Message = cut(e.ResponseStatus.Message, maxUnidentified)
	}
	if e.ObjectRef == nil {
		return
	}
	o := *e.ObjectRef // another event of the same request may have it
	for _, text := range []*string{&o.Resource, &o.Namespace, &o.Name, &o.APIGroup, &o.APIVersion, &o.Subresource} {
		*text = cut(*text, maxUnidentified)
	}
	e.ObjectRef = &o
}
