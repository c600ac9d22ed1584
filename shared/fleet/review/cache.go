package review

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
)

const (
	cacheMax  = 4096
	cacheSize = 8 << 20 // bytes of all answers
	cacheTTL  = 10 * time.Second
)

// Cache keeps answers for ten seconds. It is safe for concurrent use.
type Cache struct {
	answers *cache.Expiring[members.Digest, *answer]
	now     func() time.Time
}

// NewCache returns an empty Cache.
func NewCache(now func() time.Time) *Cache {
	answers := cache.NewExpiring[members.Digest, *answer](cacheMax, now).LimitBytes(cacheSize, (*answer).size)
	return &Cache{answers, now}
}

// getOrAsk returns the answer with the key, or asks for one and keeps it.
func (c *Cache) getOrAsk(key members.Digest, ask func() (*answer, error)) (*answer, error) {
	if a, ok := c.answers.Get(key); ok {
		return a, nil
	}
	a, err := ask()
	if err == nil {
		c.answers.Add(key, a, c.now().Add(cacheTTL))
	}
	return a, err
}

// answer is immutable.
type answer struct {
	status   json.RawMessage
	warnings []string // values of the header Warning
}

func newAnswer(status any, left []*members.Failure) (*answer, error) {
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	h := http.Header{}
	members.Warn(h, left)
	return &answer{text, h["Warning"]}, nil
}

const answerOverhead = 256 // bytes of an entry beside its texts

func (a *answer) size() int {
	size := answerOverhead + len(a.status)
	for _, w := range a.warnings {
		size += len(w)
	}
	return size
}

func (a *answer) write(w http.ResponseWriter, of request.SelfReview, spec any) error {
	h := w.Header()
	h["Warning"] = append(h["Warning"], a.warnings...)
	return write(w, of, spec, a.status)
}
