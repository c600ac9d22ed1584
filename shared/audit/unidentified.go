package audit

import (
	"strconv"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/limits"
)

const (
	maxUnidentified = limits.MaxUnidentified // bytes of the URI and of every other text of an unidentified client
	maxClaim        = 256                    // bytes of a claim that was not verified
)

// isSeparate shortens the event of an unidentified client, and reports whether it may be written. Otherwise a summary
// will count it.
func (l *Log) isSeparate(e *Event) bool {
	shorten(e)
	source := ""
	if n := len(e.SourceIPs); n > 0 {
		source = e.SourceIPs[n-1]
	}
	return l.unidentified.Allows(e, source, e.StageTimestamp.Time)
}

func (l *Log) writeSummary(minAge time.Duration) {
	s := l.unidentified.Summary(l.now(), minAge)
	if s == nil {
		return
	}
	e := *s.First
	e.AuditID, e.SourceIPs, e.StageTimestamp = uuid.NewString(), s.Sources, metav1.NewMicroTime(s.Last)
	e.Annotations[CountAnnotation] = strconv.Itoa(s.Count)
	for _, ofOne := range []string{DurationAnnotation, SentAnnotation, ReceivedAnnotation} {
		delete(e.Annotations, ofOne)
	}
	l.put(&e, s.Count, false)
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
