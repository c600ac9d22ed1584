package object

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
	"github.com/clusterpass/clusterpass/shared/status"
)

// match is a member that has an object, with its answer. The answer has only a Target if the member was not called.
type match struct {
	*members.Answer
	body []byte
}

type finder struct {
	client *members.Client
	req    *request.Request
}

// find asks all targets for the object and returns the answer of a target that has the object. If no target has it, the
// match is nil, and the failures are those of all targets. Otherwise, the failures are those of targets that may have
// the object, too. checkMatches describes the errors.
func (f *finder) find(targets []members.Target, call func(t members.Target) (members.Call, error)) (
	*match, []*members.Failure, error,
) {
	ctx, cancel := context.WithCancelCause(f.client.Context())
	defer cancel(nil)
	key := f.req.ObjectKey()
	last, isKnown := f.client.LastLocation(key)
	bodies := make([][]byte, len(targets))
	answers := f.client.Each(targets, func(i int, t members.Target) *members.Answer {
		c, err := call(t)
		if err != nil {
			return &members.Answer{Target: t, Err: f.client.Fail(f.client.Context(), t.Name, err)}
		}
		a := f.client.Do(ctx, t, c, func(a *members.Answer) (err error) {
			bodies[i], err = members.ReadLimited(a.Body, merge.MaxObject)
			return err
		})
		if a.Err == nil && isKnown && t.ID == last && f.req.IsRead() {
			time.AfterFunc(f.client.GracePeriod(), func() { cancel(members.ErrFoundElsewhere) })
		}
		return a
	})
	good, failures, err := members.Split(answers)
	if err != nil {
		return nil, nil, err
	}
	members.CloseAll(good)
	unknown := members.Without(failures, (*members.Failure).IsNotFound)
	if err := f.checkMatches(good, failures, unknown); err != nil {
		return nil, nil, err
	}
	if len(good) == 0 {
		return nil, failures, nil
	}
	f.client.RememberLocation(key, good[0].ID)
	i := slices.Index(answers, good[0])
	return &match{good[0], bodies[i]}, unknown, nil
}

// checkMatches returns an error if several members have the object, or if a failed member may have it. Exceptions:
//   - If kubectl only checks that a namespace exists, several members may have the namespace.
//   - If one member has the object, a read ignores the failed members, unless the request is strict.
//   - checkUnknown and countsAsAbsent describe when members that deny the read are ignored.
//
// good are the answers of members that have the object. unknown are the failures without code 404.
func (f *finder) checkMatches(good []*members.Answer, failures, unknown []*members.Failure) error {
	switch {
	case len(good) > 1 && !f.req.ChecksNamespace():
		return f.ambiguous(good)
	case len(unknown) > 0 && f.req.Strict:
		return members.Summary(unknown)
	case len(good) > 0 && !f.req.IsRead():
		return f.checkUnknown(good[0], unknown)
	case len(good) == 0 && len(unknown) > 0 && !f.countsAsAbsent(failures):
		return members.Summary(unknown) // a failed member may have the object
	}
	return nil
}

// checkUnknown returns an error for a request that is no read, such as a write or exec, if another member may have the
// object. It ignores members that deny the read.
func (f *finder) checkUnknown(in *members.Answer, unknown []*members.Failure) error {
	undecided := members.Without(unknown, f.isDenied)
	if len(undecided) == 0 {
		return nil
	}
	res := f.req.Resource
	return &status.Error{Reason: status.MembersFailed, Err: errors.Join(members.Errors(undecided)...),
		Message: fmt.Sprintf("%s %q is in cluster %q, and may be in another one, too: %s; to select the one that was "+
			"found, use the name %s@%s",
			res.Resource, res.Name, in.Name, members.Texts(undecided), res.Name, in.Name)}
}

// countsAsAbsent reports whether the object counts as absent although members deny the caller the read. kubectl apply
// then creates the object. The request must be a get that is not strict and selects no clusters. All other members must
// return 404, and at least one of these responses must name the object, so that the kind exists.
func (f *finder) countsAsAbsent(failures []*members.Failure) bool {
	req := f.req
	if req.Strict || req.Cluster != "" || req.Clusters != nil || req.Resource.Verb != "get" ||
		req.Resource.Subresource != "" {
		return false
	}
	isAbsent := false
	for _, e := range failures {
		if !e.IsNotFound() && !f.isDenied(e) {
			return false
		}
		isAbsent = isAbsent || e.IsNotFound() && f.namesObject(e)
	}
	return isAbsent
}

// isDenied reports whether a member denies the caller the read of the object. If a member denies the gateway the
// impersonation, its Status names another resource.
func (f *finder) isDenied(e *members.Failure) bool {
	return e.Code == http.StatusForbidden && f.namesObject(e) &&
		e.Status.Details.Kind == f.req.Resource.Resource && e.Status.Details.Group == f.req.Resource.APIGroup
}

func (f *finder) namesObject(e *members.Failure) bool {
	return e.Status != nil && e.Status.Details != nil && e.Status.Details.Name == f.req.Resource.Name
}

// ambiguous returns the error for an object that several members have. For a server-side apply, its code is not 409:
// kubectl would explain a 409 as a conflict of field managers.
func (f *finder) ambiguous(of []*members.Answer) error {
	reason := status.Ambiguous
	if isApply(f.req.Header.Get("Content-Type")) {
		reason = status.NoPlacement
	}
	res := f.req.Resource
	names, forms := make([]string, len(of)), make([]string, len(of))
	for i, a := range of {
		names[i], forms[i] = a.Name, res.Name+"@"+a.Name
	}
	return status.New(reason, "", "%s %q is in %d clusters: %s; name one of them, as %s", res.Resource, res.Name, len(of),
		strings.Join(names, ", "), strings.Join(forms, " or "))
}

// notFound passes a member's 404 to the client, and prefers one about the object to one about the kind. failures must
// contain a 404. When find returns neither a match nor an error, the returned failures always contain one.
func (h *Handler) notFound(w http.ResponseWriter, failures []*members.Failure) error {
	members.Warn(w.Header(), members.Without(failures, (*members.Failure).IsNotFound))
	best := failures[slices.IndexFunc(failures, (*members.Failure).IsNotFound)]
	for _, e := range failures {
		if e.IsNotFound() && e.Status != nil && e.Status.Details != nil && e.Status.Details.Name != "" {
			best = e
			break
		}
	}
	return respond.Failure(w, best, h.newAnswer(best.Cluster))
}

// owner returns the target that has the object, and warns of members that may have the object, too. If no target has
// it, owner returns nil and the failures. Without mustRead, owner returns a single target without a call.
func (h *Handler) owner(w http.ResponseWriter, targets []members.Target, mustRead bool) (
	*match, []*members.Failure, error,
) {
	if len(targets) == 1 && !mustRead {
		return &match{Answer: &members.Answer{Target: targets[0]}}, nil, nil
	}
	header := http.Header{
		"Accept":          {"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"},
		"Accept-Encoding": {"identity"}, "Content-Type": nil, "Upgrade": nil, "Connection": nil,
	}
	for name := range h.Request.Header {
		if strings.HasPrefix(name, "Sec-Websocket-") {
			header[name] = nil
		}
	}
	object, failures, err := (&finder{h.Client, h.Request}).find(targets, func(members.Target) (members.Call, error) {
		return members.Call{Method: http.MethodGet, Path: h.Request.ObjectPath(), Header: header}, nil
	})
	if err != nil || object == nil {
		return nil, failures, err
	}
	members.Warn(w.Header(), failures)
	return object, nil, nil
}
