package loggroup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/google/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

var moto *mototest.Server

func TestMain(m *testing.M) { mototest.Main(m, &moto) }

var quiet = slog.New(slog.DiscardHandler)

// service is a fake AWS with one log group.
type service struct {
	*mototest.Front
	t      *testing.T
	client *cloudwatchlogs.Client
	group  string
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{
		Front: mototest.NewFront(t, moto.URL), t: t, client: cloudwatchlogs.NewFromConfig(mototest.Config(moto.URL)),
		group: "/clusterpass/" + uuid.NewString() + "/audit",
	}
	if _, err := s.client.CreateLogGroup(t.Context(), &cloudwatchlogs.CreateLogGroupInput{
		LogGroupName: &s.group,
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *service) sink() *Sink {
	return New(Config{AWS: mototest.Config(s.URL), Group: s.group, StreamPrefix: "proxy"})
}

func (s *service) events() []types.FilteredLogEvent {
	s.t.Helper()
	var all []types.FilteredLogEvent
	for in := (&cloudwatchlogs.FilterLogEventsInput{LogGroupName: &s.group}); ; {
		out, err := s.client.FilterLogEvents(s.t.Context(), in)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, out.Events...)
		if in.NextToken = out.NextToken; in.NextToken == nil {
			return all
		}
	}
}

func record(l *audit.Log) error {
	r := httptest.NewRequest(http.MethodGet, "/clusters/m/api/v1/namespaces/a/pods/p?a=1&b=ä", nil)
	q := l.Begin(r)
	if err := q.Admit(r.Context()); err != nil {
		return err
	}
	q.User(audit.User{Username: "ann"}, "x509")
	q.Completed(200, nil)
	return nil
}

// Every event must be in the log group once it is acknowledged, with the time at which it occurred. Processes must
// share a stream: AWS limits how many are created a second, and many environments of a function may start at once.
func TestEventsArriveInOneStream(t *testing.T) {
	s := newService(t)
	for range 2 { // processes
		l := audit.New(audit.Config{Sinks: []audit.Sink{s.sink()}, Queue: 1000, Log: quiet})
		for range 1000 {
			if err := record(l); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(t.Context()); err != nil || l.Stats().Lost != 0 {
			t.Fatalf("%v, %+v", err, l.Stats())
		}
	}
	streams, events := map[string]int{}, 0
	for _, got := range s.events() {
		streams[*got.LogStreamName]++
		events++
		var e auditv1.Event
		if err := json.Unmarshal([]byte(*got.Message), &e); err != nil || e.User.Username != "ann" ||
			e.StageTimestamp.UnixMilli() != *got.Timestamp || strings.HasSuffix(*got.Message, "\n") {
			t.Fatalf("%v: %s at %d", err, *got.Message, *got.Timestamp)
		}
	}
	for name := range streams {
		if !regexp.MustCompile(`^proxy/\d{4}/\d{2}/\d{2}/\d{2}$`).MatchString(name) {
			t.Errorf("a stream is called %s", name)
		}
	}
	// An hour may end during the test.
	if calls := s.Calls("PutLogEvents"); events != 2000 || len(streams) > 2 || calls > 1000 ||
		s.Calls("CreateLogStream") != len(streams) {
		t.Errorf("%d events are in %v after %d calls", events, streams, calls)
	}
}

// A function that is frozen after its response must have delivered the event by then, also if AWS throttles a call.
func TestEventIsDeliveredBeforeCallEnds(t *testing.T) {
	s := newService(t)
	l := audit.New(audit.Config{Sinks: []audit.Sink{s.sink()}, Log: quiet})
	for want := 1; want <= 3; want++ {
		s.Throttle(2)
		if err := record(l); err != nil || len(s.events()) != want {
			t.Errorf("%v, %d events have arrived, want %d", err, len(s.events()), want)
		}
	}
	if n := l.Stats().Lost; n != 0 {
		t.Errorf("%d events are lost", n)
	}
}

// With fail-closed, requests must be refused while the group refuses events, and no event may be lost. Otherwise
// lost events must be counted.
func TestGroupRefusesEvents(t *testing.T) {
	for name, queue := range map[string]int{"bridge": 5, "function": 0} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			closed := audit.New(audit.Config{Sinks: []audit.Sink{s.sink()}, Queue: queue, FailClosed: true, Log: quiet})
			s.Deny()
			accepted := 0
			for range 20 {
				err := record(closed)
				if err == nil {
					accepted++
				} else if refused := (*status.Error)(nil); !errors.As(err, &refused) || refused.Reason != status.AuditUnavailable {
					t.Fatal(err)
				}
			}
			waiting := max(queue, 1) // without a queue, the first call is refused, and the event that it was received waits
			if accepted != queue || closed.Stats().Waiting != waiting || len(s.events()) != 0 {
				t.Errorf("%d calls are accepted, %+v", accepted, closed.Stats())
			}
			s.Refuse("", 0)
			waittest.Until(t, "a call is accepted again", func() bool { return record(closed) == nil })
			if err := closed.Close(t.Context()); err != nil || len(s.events()) != waiting+1 || closed.Stats().Lost != 0 {
				t.Errorf("%v, %d events arrived, %+v", err, len(s.events()), closed.Stats())
			}

			open := audit.New(audit.Config{Sinks: []audit.Sink{s.sink()}, Queue: queue, Log: quiet})
			s.Deny()
			waittest.Until(t, "an event is lost", func() bool {
				if err := record(open); err != nil {
					t.Fatal(err)
				}
				return open.Stats().Lost > 0
			})
		})
	}
}

// An operator may delete a stream, and a stack may be deployed again with a group that is missing meanwhile.
func TestMissingStreamAndGroup(t *testing.T) {
	s := newService(t)
	sink := s.sink()
	deliver := func(ctx context.Context) error {
		_, err := sink.Deliver(ctx, [][]byte{[]byte("{}\n")})
		return err
	}
	if err := deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range s.events() {
		if _, err := s.client.DeleteLogStream(t.Context(), &cloudwatchlogs.DeleteLogStreamInput{
			LogGroupName: &s.group, LogStreamName: e.LogStreamName,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := deliver(t.Context()); err != nil || len(s.events()) != 1 {
		t.Errorf("after the deletion of the stream: %v, %d events", err, len(s.events()))
	}
	if _, err := s.client.DeleteLogGroup(t.Context(), &cloudwatchlogs.DeleteLogGroupInput{
		LogGroupName: &s.group,
	}); err != nil {
		t.Fatal(err)
	}
	if err := deliver(t.Context()); err == nil || errors.Is(err, audit.ErrRejected) {
		t.Errorf("without a group: %v", err)
	}
}

// api is a fake of CloudWatch Logs. It records batches, and responds with answer or accepts them.
type api struct {
	mu      sync.Mutex
	batches [][]types.InputLogEvent
	answer  func(batch []types.InputLogEvent) (code int, body string)
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if r.Header.Get("X-Amz-Target") != "Logs_20140328.PutLogEvents" {
		fmt.Fprint(w, "{}")
		return
	}
	var in struct{ LogEvents []types.InputLogEvent }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.batches = append(a.batches, in.LogEvents)
	code, body := http.StatusOK, "{}"
	if a.answer != nil {
		code, body = a.answer(in.LogEvents)
	}
	w.WriteHeader(code)
	fmt.Fprint(w, body)
}

func (a *api) sink(t *testing.T) *Sink {
	t.Helper()
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	return New(Config{AWS: mototest.Config(srv.URL), Group: "g", StreamPrefix: "bridge"})
}

func lineAt(at time.Time, text string) []byte {
	stage := at.UTC().Format("2006-01-02T15:04:05.000000Z")
	return fmt.Appendf(nil, `{"requestURI":%q,"stageTimestamp":%q}`+"\n", text, stage)
}

// A batch beyond one of AWS's limits is refused, with all its events.
func TestBatchesKeepLimits(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		lines   [][]byte
		batches int
	}{
		"one":  {[][]byte{lineAt(now, "a")}, 1},
		"size": {slices.Repeat([][]byte{lineAt(now, strings.Repeat("x", 300<<10))}, 10), 4},
		// Without the overhead of each event, they would fit.
		"overhead": {slices.Repeat([][]byte{lineAt(now, strings.Repeat("x", maxBatchBytes/4-80))}, 4), 2},
		"number":   {slices.Repeat([][]byte{lineAt(now, "a")}, 10_001), 2},
		"order":    {[][]byte{lineAt(now, "b"), lineAt(now.Add(-time.Minute), "a"), lineAt(now, "c")}, 1},
		"days": {[][]byte{
			lineAt(now.Add(-25*time.Hour), "a"), lineAt(now.Add(-time.Hour), "b"), lineAt(now, "c"),
		}, 2},
		"days in disorder": {[][]byte{lineAt(now, "a"), lineAt(now.Add(-25*time.Hour), "b")}, 2},
		"no time":          {[][]byte{[]byte("{}\n"), []byte("text")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := &api{}
			n, err := a.sink(t).Deliver(t.Context(), tt.lines)
			if n != len(tt.lines) || err != nil || len(a.batches) != tt.batches {
				t.Fatalf("%d of %d are accepted in %d batches, want %d: %v", n, len(tt.lines), len(a.batches), tt.batches, err)
			}
			sent := 0
			for _, batch := range a.batches {
				sent += len(batch)
				checkBatch(t, batch)
			}
			if sent != n {
				t.Errorf("%d events are sent, want %d", sent, n)
			}
		})
	}
}

func checkBatch(t *testing.T, batch []types.InputLogEvent) {
	t.Helper()
	size := 0
	for _, e := range batch {
		size += len(*e.Message) + 26
	}
	isOrdered := slices.IsSortedFunc(batch, func(a, b types.InputLogEvent) int { return int(*a.Timestamp - *b.Timestamp) })
	span := time.Duration(*batch[len(batch)-1].Timestamp-*batch[0].Timestamp) * time.Millisecond
	if len(batch) > 10_000 || size > 1_048_576 || !isOrdered || span > 24*time.Hour {
		t.Errorf("a batch has %d events, %d bytes and %s, in order: %t", len(batch), size, span, isOrdered)
	}
}

// An event that is too large must be known as rejected, so that it is sent with short texts. Those before it must not
// be sent twice.
func TestLargeEventIsRejected(t *testing.T) {
	a := &api{}
	n, err := a.sink(t).Deliver(t.Context(), [][]byte{[]byte("{}"), bytes.Repeat([]byte("x"), maxBatchBytes)})
	if n != 1 || !errors.Is(err, audit.ErrRejected) || len(a.batches) != 1 {
		t.Errorf("%d are accepted in %d batches: %v", n, len(a.batches), err)
	}
	a.answer = func([]types.InputLogEvent) (int, string) {
		return http.StatusBadRequest, `{"__type":"InvalidParameterException","message":"Log event too large"}`
	}
	for text, isRejected := range map[string]bool{strings.Repeat("x", 256<<10): true, "{}": false} {
		n, err = a.sink(t).Deliver(t.Context(), [][]byte{[]byte(text)})
		if n != 0 || err == nil || errors.Is(err, audit.ErrRejected) != isRejected {
			t.Errorf("of %d bytes, %d are accepted: %v", len(text), n, err)
		}
	}
}

// CloudWatch acknowledges a batch although it rejects some of its events. If it rejects them with the present time,
// too, an operator must learn that they are lost.
func TestRejectedEventsAreCounted(t *testing.T) {
	now := time.Now()
	lines := [][]byte{
		lineAt(now, "new"), lineAt(now.Add(-3*time.Hour), "old"), lineAt(now.Add(-time.Hour), "a"),
		lineAt(now.Add(-2*time.Hour), "expired"), lineAt(now.Add(-time.Minute), "b"),
	}
	for name, tt := range map[string]struct {
		info string
		want []int
	}{
		"old":             {`{"tooOldLogEventEndIndex":1}`, []int{1}},
		"expired":         {`{"expiredLogEventEndIndex":2}`, []int{1, 3}},
		"new":             {`{"tooNewLogEventStartIndex":4}`, []int{0}},
		"all are new":     {`{"tooNewLogEventStartIndex":0}`, []int{0, 1, 2, 3, 4}},
		"expired and new": {`{"expiredLogEventEndIndex":2,"tooNewLogEventStartIndex":4}`, []int{0, 1, 3}},
		"none":            {`{}`, nil},
		"none but a key":  {`{"tooOldLogEventEndIndex":0}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := &api{}
			a.answer = func([]types.InputLogEvent) (int, string) {
				if len(a.batches) > 1 {
					return http.StatusOK, `{"rejectedLogEventsInfo":{"tooNewLogEventStartIndex":0}}`
				}
				return http.StatusOK, `{"rejectedLogEventsInfo":` + tt.info + `}`
			}
			n, err := a.sink(t).Deliver(t.Context(), lines)
			var rejected *audit.RejectedError
			if errors.As(err, &rejected) != (tt.want != nil) || n != len(lines) ||
				rejected != nil && !slices.Equal(rejected.Events, tt.want) {
				t.Errorf("%d are accepted, %v, want %v", n, err, tt.want)
			}
		})
	}
	a := &api{answer: func([]types.InputLogEvent) (int, string) {
		return http.StatusOK, `{"rejectedLogEventsInfo":{"tooNewLogEventStartIndex":0}}`
	}}
	l := audit.New(audit.Config{Sinks: []audit.Sink{a.sink(t)}, Log: quiet})
	if err := record(l); err != nil || l.Stats().Lost != 1 || len(a.batches) != 2 {
		t.Errorf("%v, %+v after %d calls", err, l.Stats(), len(a.batches))
	}
}

// After a long outage of CloudWatch, or with a clock that is wrong, events must not be lost for their times.
func TestEventOutOfTimeGetsPresentTime(t *testing.T) {
	began := time.Now()
	lines := [][]byte{lineAt(began.Add(3*time.Hour), "future"), lineAt(began.Add(-20*24*time.Hour), "old")}
	failing := 0 // the number of the call that fails, from 1
	a := &api{}
	a.answer = func(batch []types.InputLogEvent) (int, string) {
		at := time.UnixMilli(*batch[0].Timestamp)
		switch {
		case len(a.batches) == failing:
			return http.StatusForbidden, `{"__type":"AccessDeniedException"}`
		case at.Before(began.Add(-14 * 24 * time.Hour)):
			return http.StatusOK, `{"rejectedLogEventsInfo":{"tooOldLogEventEndIndex":1}}`
		case at.After(time.Now().Add(2 * time.Hour)):
			return http.StatusOK, `{"rejectedLogEventsInfo":{"tooNewLogEventStartIndex":0}}`
		}
		return http.StatusOK, "{}"
	}
	if n, err := a.sink(t).Deliver(t.Context(), lines); n != 2 || err != nil || len(a.batches) != 4 {
		t.Fatalf("%d are accepted after %d calls, %v", n, len(a.batches), err)
	}
	for i, line := range lines {
		e := a.batches[2*i+1][0]
		moved := time.UnixMilli(*e.Timestamp).Sub(began)
		if moved < -time.Second || moved > time.Minute || *e.Message != strings.TrimSpace(string(line)) {
			t.Errorf("%s has the time %d", *e.Message, *e.Timestamp)
		}
	}
	failing = len(a.batches) + 4
	if n, err := a.sink(t).Deliver(t.Context(), lines); n != 1 || err == nil || errors.Is(err, audit.ErrRejected) {
		t.Errorf("%d are accepted although the last call failed, %v", n, err)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"/clusterpass/prod/0123/audit": true, "a": true, "": false, "a b": false, "a:b": false, "a*": false,
		strings.Repeat("a", 513): false,
	} {
		if ValidGroup(name) != want || name != "" && len(name) < 200 && ValidPrefix(name) != want {
			t.Errorf("%q is valid: %t", name, !want)
		}
	}
	if ValidPrefix(strings.Repeat("p", 257)) {
		t.Error("the name of a stream, which has at most 512 characters, could be longer")
	}
}
