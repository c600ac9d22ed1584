// Package recorder records sessions that pass through the bridge: exec, attach and port-forward in every dialect. Read
// Recorder and Session in this order. Package decode extracts the content.
//
// Invariants:
//   - No byte changes, until a session that must be recorded ends because its recorder failed.
//   - A recording begins before the member gets the request, so that no command runs unrecorded.
//   - A session without a rule passes through no code of this package.
//   - The recording of a port-forward has only the numbers of bytes.
package recorder

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Recorder records sessions. It is safe for concurrent use.
type Recorder struct {
	recordings atomic.Pointer[recording.Recorder] // nil before RecordTo
	log        atomic.Pointer[slog.Logger]
	sessions   *prometheus.CounterVec
	failures   *prometheus.CounterVec
}

// FailuresMetric is the Prometheus name of the number of sessions whose recording is missing or incomplete.
const FailuresMetric = "clusterpass_recording_failures_total"

// New returns a Recorder and registers its metrics. Until RecordTo is called, it refuses sessions whose recording is
// required.
func New(reg prometheus.Registerer) *Recorder {
	r := &Recorder{
		sessions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clusterpass_recorded_sessions_total", Help: "Sessions whose recording began, by kind.",
		}, []string{"kind"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: FailuresMetric,
			Help: "Sessions whose recording is missing or incomplete, by the level of the policy.",
		}, []string{"level"}),
	}
	for _, level := range []policy.Level{policy.Required, policy.BestEffort} {
		r.failures.WithLabelValues(string(level)) // an alert needs the zero
	}
	r.log.Store(slog.Default())
	reg.MustRegister(r.sessions, r.failures)
	return r
}

// RecordTo stores the recordings of later sessions by recordings, and logs failures.
func (r *Recorder) RecordTo(recordings *recording.Recorder, log *slog.Logger) {
	r.log.Store(log)
	r.recordings.Store(recordings)
}

var errNoStore = errors.New("no store of recordings is configured (CLUSTERPASS_RECORDINGS), or its key is unavailable")

// Begin begins the recording of a session, whose rule is not policy.None. If the recording is required and fails
// later, the Session calls end with the reason. The caller must close the Session.
//
// If the recording cannot begin, Begin returns a *status.Error or, for policy.BestEffort, a nil Session. If the client
// has gone, it returns the context's error. It refuses names that no API server accepts, and stores nothing then.
// The header of a recording has them, and a client needs no credential for a session of a passthrough cluster.
func (r *Recorder) Begin(req *http.Request, c *gateway.StreamCall, end func(*status.Error)) (*Session, error) {
	info := infoOf(req, c)
	if err := checkNames(&info); err != nil {
		return nil, err
	}
	begun, err := r.begin(req.Context(), info)
	switch {
	case err == nil:
		r.sessions.WithLabelValues(info.Kind).Inc()
		c.RecordRecording(info.ID)
		return newSession(r, begun, info, c, end), nil
	case errors.Is(req.Context().Err(), context.Canceled):
		return nil, req.Context().Err()
	}
	r.fail(c, err)
	if c.Rule.Level == policy.BestEffort {
		return nil, nil
	}
	return nil, &status.Error{
		Reason: status.Unrecorded, Cluster: c.Route.Cluster, Err: err,
		Message: "the session was refused: a RecordingPolicy requires its recording, and the recorder cannot begin; try " +
			"again later, or ask the gateway's administrator",
	}
}

// The maximum lengths of names in Kubernetes.
const (
	maxLabel     = 63
	maxSubdomain = 253
)

func checkNames(i *recording.Info) error {
	for _, n := range []struct {
		field, name string
		limit       int
	}{{"namespace", i.Namespace, maxLabel}, {"pod", i.Pod, maxSubdomain}, {"container", i.Container, maxLabel}} {
		if len(n.name) > n.limit {
			return status.New(status.BadRequest, i.Cluster,
				"the session was refused: the name of the %s has %d bytes; want at most %d", n.field, len(n.name), n.limit)
		}
	}
	return nil
}

func (r *Recorder) begin(ctx context.Context, info recording.Info) (*recording.Session, error) {
	recordings := r.recordings.Load()
	if recordings == nil {
		return nil, errNoStore
	}
	return recordings.Begin(ctx, info)
}

// fail reports a missing or incomplete recording. The goroutine of the request must call it.
func (r *Recorder) fail(c *gateway.StreamCall, err error) {
	r.failures.WithLabelValues(string(c.Rule.Level)).Inc()
	c.RecordUnrecorded(err.Error())
	r.log.Load().Warn("a session is not recorded", "cluster", c.Route.Cluster, "policy", c.Rule.Policy,
		"level", c.Rule.Level, "error", err.Error())
}

var kinds = map[string]string{
	"exec": recording.Exec, "attach": recording.Attach, "portforward": recording.PortForward,
}

func infoOf(req *http.Request, c *gateway.StreamCall) recording.Info {
	res, now := c.Resource, time.Now()
	query, _ := url.ParseQuery(c.Query) // parameters that cannot be parsed are ignored, as in kube-apiserver
	info := recording.Info{
		ID: recording.NewID(now), Start: now, Kind: kinds[res.Subresource],
		RequestID: req.Header.Get(audit.IDHeader),
		Cluster:   c.Route.Cluster, Namespace: res.Namespace, Pod: res.Name, Container: query.Get("container"),
		RecordsInput: c.Rule.RecordInput,
	}
	if info.Kind != recording.PortForward {
		info.Command = query["command"]
		info.TTY, info.HasInput = route.TruthyIn(query, "tty"), route.TruthyIn(query, "stdin")
	}
	if c.Bearer != "" {
		t := audit.Token(identity.Unverified(c.Bearer)).Shorten()
		info.Unverified = recording.Unverified{
			TokenSHA256: t.Hash, Issuer: t.Issuer, Subject: t.Subject, TokenID: t.ID,
		}
	}
	if c.User != nil {
		info.User, info.Groups, info.Impersonator = c.User.Name, c.User.Groups, c.User.Impersonator
	}
	if c.Caller != nil {
		if passes := c.Caller.Extra[identity.ExtraPass]; len(passes) > 0 {
			info.Pass = passes[0]
		}
	}
	return info
}
