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

// isSeparate shortens the event of an unidentified client, and reports whether it may be written. It may not without
// space in the queues. Otherwise a summary will count it.
func (l *Log) isSeparate(e *Event) bool {
	e.mapTexts(func(s string) string { return cut(s, maxUnidentified) })
	source := ""
	if n := len(e.SourceIPs); n > 0 {
		source = e.SourceIPs[n-1]
	}
	if !l.hasSpace() {
		l.unidentified.Count(e, source, e.StageTimestamp.Time)
		return false
	}
	return l.unidentified.Allows(e, source, e.StageTimestamp.Time)
}

// writeSummary writes the summary of unidentified clients, unless it is younger than minAge. While a queue is full, the
// summary waits, and counts further events. end is the end of its delivery without a queue.
func (l *Log) writeSummary(minAge time.Duration, end time.Time) {
	if l.hasSpace() {
		l.putSummary(minAge, end)
	} else {
		l.unidentified.Postpone()
	}
}

func (l *Log) putSummary(minAge time.Duration, end time.Time) {
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
	l.put(&e, s.Count, true, end)
}
