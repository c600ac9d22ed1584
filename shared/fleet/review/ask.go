package review

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
	"github.com/clusterpass/clusterpass/shared/status"
)

const maxAsked = 32 // clusters that one review calls at once

// question is a review for members: without @cluster in its spec.
type question struct {
	of       request.SelfReview
	spec     any
	audience *audience
}

// audience has the clusters that the caller may call, sorted by name.
type audience struct {
	asked   []members.Target
	grants  map[string]selection.Grant // by the names of clusters
	refused []refusal
}

// refusal is a cluster in which the gateway refuses the action to the caller.
type refusal struct{ cluster, reason string }

// audience selects the clusters of a review. cluster is the one that its body names, or "".
func (h *Handler) audience(w http.ResponseWriter, cluster string, of action) (*audience, error) {
	selector := h.Selector
	if cluster != "" {
		req, err := h.Request.InCluster(cluster)
		if err != nil {
			return nil, err
		}
		selector = selector.For(req)
	}
	grants, err := selector.Grants(h.Client.Context())
	if err != nil {
		return nil, err
	}
	a := &audience{grants: map[string]selection.Grant{}}
	for _, g := range grants {
		if reason := of.refusal(g); reason != "" {
			a.refused = append(a.refused, refusal{g.Name, reason})
			continue
		}
		a.asked = append(a.asked, target(g))
		a.grants[g.Name] = g
	}
	a.asked = selector.SkipUnidentifiable(w.Header(), a.asked)
	if len(a.asked) == 1 && h.Recorder != nil {
		h.Recorder.RecordClusters(a.asked[0].Name)
	}
	return a, nil
}

func target(g selection.Grant) members.Target {
	return members.Target{Entry: g.Entry, Scope: registry.Scope{All: true}}
}

// key returns a digest of the caller and of everything else that the answer depends on.
func (h *Handler) key(q question) members.Digest {
	var clusters []string
	for _, t := range q.audience.asked {
		clusters = append(clusters,
			fmt.Sprintf("%q %d %v %q", t.Name, t.ID, q.audience.grants[t.Name].Verbs, t.Spec.ServiceProxy))
	}
	return members.DigestOf(h.Request.CallerDigest(), h.Request.Strict, q.of, q.spec, clusters,
		fmt.Sprintf("%q", q.audience.refused))
}

// ask asks all clusters of the question, at most maxAsked at once, within the deadline of one call. read gets one
// answer at a time, with the index of its cluster. Once it returns enough, the others have only the grace period.
func (h *Handler) ask(q question, maxAnswer int64, read func(i int, answer []byte) (enough bool, err error)) (
	[]*members.Failure, error,
) {
	body, err := json.Marshal(map[string]any{"kind": q.of.Kind, "apiVersion": q.of.APIVersion(), "spec": q.spec})
	if err != nil {
		return nil, err
	}
	call := members.Call{
		Method: http.MethodPost, Path: "/apis/" + q.of.APIVersion() + "/" + q.of.Resource, Body: body,
		Header: http.Header{
			"Accept": {"application/json"}, "Accept-Encoding": {"identity"}, "Content-Type": {"application/json"},
			"Content-Encoding": nil,
		},
	}
	ctx, cancel := context.WithCancelCause(h.Client.Context())
	defer cancel(nil)
	deadline := h.Client.Deadline()
	defer time.AfterFunc(deadline, func() { cancel(members.NewDeadlineError(deadline)) }).Stop()
	one := reader{client: h.Client, limit: maxAnswer, read: read, cancel: cancel}
	defer one.stop()
	slots := make(chan struct{}, maxAsked)
	answers := h.Client.Each(q.audience.asked, func(i int, t members.Target) *members.Answer {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return h.notAsked(ctx, members.NewFailure(t.Name, http.StatusGatewayTimeout, nil,
				"cluster %q was not asked in time, because others did not answer", t.Name))
		}
		if e := h.Client.RecentlyHung(t.Name); e != nil {
			return h.notAsked(ctx, e)
		}
		return h.Client.Do(ctx, t, call, func(a *members.Answer) error { return one.readAnswer(i, a) })
	})
	good, failures, err := members.Split(answers)
	members.CloseAll(good)
	h.Client.RememberHung(failures)
	return failures, err
}

func (h *Handler) notAsked(ctx context.Context, e *members.Failure) *members.Answer {
	return &members.Answer{Err: h.Client.Fail(ctx, e.Cluster, e)}
}

// reader reads the answers of one question, one at a time.
type reader struct {
	client *members.Client
	limit  int64
	read   func(i int, answer []byte) (enough bool, err error)
	cancel context.CancelCauseFunc // ends the calls

	mu    sync.Mutex
	grace *time.Timer // nil until an answer was enough
}

func (r *reader) readAnswer(i int, a *members.Answer) error {
	data, err := members.ReadLimited(a.Body, r.limit)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	release, err := r.client.AcquireDecodeSlot(len(data))
	if err != nil {
		return err
	}
	defer release()
	enough, err := r.read(i, data)
	if enough && r.grace == nil {
		grace := r.client.GracePeriod()
		r.grace = time.AfterFunc(grace, func() {
			r.cancel(status.New(status.Timeout, "", "no answer within %v after another cluster allowed it", grace))
		})
	}
	return err
}

func (r *reader) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.grace != nil {
		r.grace.Stop()
	}
}

// decodeAnswer decodes the answer of a member, which must be of the kind that was sent.
func decodeAnswer(data []byte, maxValues int, q question, into runtime.Object) error {
	if err := scan.CheckValueCount(data, maxValues); err != nil {
		return fmt.Errorf("its answer to a review cannot be read: %w", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, into); err != nil {
		return errors.New("its answer to a review cannot be read")
	}
	if got := into.GetObjectKind().GroupVersionKind(); got.Kind != q.of.Kind ||
		got.GroupVersion().String() != q.of.APIVersion() {
		return fmt.Errorf("its answer is no %s of %s", q.of.Kind, q.of.APIVersion())
	}
	return nil
}

// invalid returns the error of the members if every one refused the review itself, as one without a verb.
func invalid(q question, failures []*members.Failure) error {
	if len(failures) == 0 || len(failures) < len(q.audience.asked) {
		return nil
	}
	switch err := status.From(members.Summary(failures)); err.Code() {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return err
	}
	return nil
}
