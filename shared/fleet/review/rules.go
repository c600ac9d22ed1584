package review

import (
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
)

// Bounds of rules. A member's answer of maxRules bytes needs some MB when decoded. Only one is decoded at a time.
const (
	maxRules      = 256 << 10 // bytes of one member's answer
	maxRuleValues = 50_000    // values in it
)

func (h *Handler) serveRules(w http.ResponseWriter) error {
	var review authorizationv1.SelfSubjectRulesReview
	if err := h.read(request.RulesReview, &review); err != nil {
		return err
	}
	asked := review.Spec
	cluster, err := h.splitCluster(&asked.Namespace, nil)
	if err != nil {
		return err
	}
	a, err := h.audience(w, cluster, action{})
	if err != nil {
		return err
	}
	q := question{request.RulesReview, &asked, a}
	answer, err := h.Cache.getOrAsk(h.key(q), func() (*answer, error) { return h.askRules(q, asked.Namespace) })
	if err != nil {
		return err
	}
	return answer.write(w, request.RulesReview, review.Spec)
}

func (h *Handler) askRules(q question, namespace string) (*answer, error) {
	u := union{rules: map[members.Digest]*unionRule{}}
	failures, err := h.ask(q, maxRules, func(i int, data []byte) (enough bool, err error) {
		var review authorizationv1.SelfSubjectRulesReview
		if err := decodeAnswer(data, maxRuleValues, q, &review); err != nil {
			return false, err
		}
		u.add(i, q.audience.grants[q.audience.asked[i].Name], namespace, &review.Status)
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	if err := invalid(q, failures); err != nil {
		return nil, err
	}
	return newAnswer(u.status(failures), nil)
}
