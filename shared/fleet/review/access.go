package review

import (
	"fmt"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
)

// Bounds of a member's answer. Real ones have some hundred bytes.
const (
	maxVerdict       = 64 << 10
	maxVerdictValues = 1000
)

// uncovered is the reason if the review asks no cluster. It must not show whether clusters exist.
const uncovered = "no ResourceRegistry of search.karmada.io/v1alpha1 selects a cluster that you may call"

func (h *Handler) serveAccess(w http.ResponseWriter) error {
	var review authorizationv1.SelfSubjectAccessReview
	if err := h.read(request.AccessReview, &review); err != nil {
		return err
	}
	asked := review.Spec.DeepCopy()
	var cluster string
	var action action
	if of := asked.ResourceAttributes; of != nil {
		var err error
		if cluster, err = h.splitCluster(&of.Namespace, &of.Name); err != nil {
			return err
		}
		action = newAction(of)
	} else if of := asked.NonResourceAttributes; of != nil {
		action.verb = of.Verb
	}
	a, err := h.audience(w, cluster, action)
	if err != nil {
		return err
	}
	q := question{request.AccessReview, asked, a}
	answer, err := h.Cache.getOrAsk(h.key(q), func() (*answer, error) { return h.askAccess(q) })
	if err != nil {
		return err
	}
	return answer.write(w, request.AccessReview, review.Spec)
}

func (h *Handler) askAccess(q question) (*answer, error) {
	verdicts := make([]authorizationv1.SubjectAccessReviewStatus, len(q.audience.asked))
	failures, err := h.ask(q, maxVerdict, func(i int, data []byte) (enough bool, err error) {
		var review authorizationv1.SelfSubjectAccessReview
		if err := decodeAnswer(data, maxVerdictValues, q, &review); err != nil {
			return false, err
		}
		review.Status.Allowed = review.Status.Allowed && !review.Status.Denied
		verdicts[i] = review.Status
		return review.Status.Allowed && !h.Request.Strict, nil
	})
	if err != nil {
		return nil, err
	}
	if err := invalid(q, failures); err != nil {
		return nil, err
	}
	out, left := combine(q.audience, verdicts, failures, h.Request.Strict)
	return newAnswer(out, left)
}

// combine returns the common verdict, and the failures that it does not explain.
func combine(a *audience, verdicts []authorizationv1.SubjectAccessReviewStatus, failures []*members.Failure,
	isStrict bool,
) (out authorizationv1.SubjectAccessReviewStatus, left []*members.Failure) {
	failed := map[string]bool{}
	var problems texts
	for _, e := range failures {
		failed[e.Cluster] = true
		problems.add(e.Text())
	}
	var allow, others []string
	for i, t := range a.asked {
		name, v := t.Name, verdicts[i]
		if len(a.asked) == 1 && v.Reason != "" { // only then, since a reason may be long
			name += fmt.Sprintf(" (%s)", shorten(v.Reason))
		}
		switch {
		case failed[t.Name]:
			continue
		case v.Allowed:
			allow = append(allow, name)
		default:
			others = append(others, name)
		}
		if v.EvaluationError != "" {
			problems.add(fmt.Sprintf("cluster %q: %s", t.Name, v.EvaluationError))
		}
	}
	for _, r := range a.refused {
		others = append(others, fmt.Sprintf("%s (%s)", r.cluster, r.reason))
	}
	out.Allowed = len(allow) > 0 && (!isStrict || len(others)+len(failures) == 0)
	var reasons []string
	for _, r := range []struct {
		text     string
		clusters []string
	}{{"clusters that allow it: ", allow}, {"clusters that do not: ", others}} {
		if len(r.clusters) > 0 {
			reasons = append(reasons, r.text+strings.Join(r.clusters, ", "))
		}
	}
	out.Reason = strings.Join(reasons, "; ")
	switch {
	case out.Allowed:
		return out, failures
	case len(a.asked)+len(a.refused) == 0:
		out.Reason = uncovered
	}
	out.EvaluationError = problems.String()
	return out, nil
}
