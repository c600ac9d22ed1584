package members

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Load balancers permit some kilobytes of headers. A warning has at most maxWarning bytes.
const (
	maxWarning  = 400
	MaxWarnings = 16
)

// Warn adds a warning for each member that the response leaves out. kubectl prints them.
func Warn(h http.Header, failures []*Failure) { WarnOf(h, failures, "left out") }

// WarnOf is Warn with another description of what the response leaves out.
func WarnOf(h http.Header, failures []*Failure, omission string) {
	for i, e := range failures {
		if more := len(failures) - i; len(h["Warning"]) >= MaxWarnings-1 && more > 1 {
			AddWarning(h, fmt.Sprintf("%d more clusters fail (%s)", more, omission))
			return
		}
		AddWarning(h, e.Text()+" ("+omission+")")
	}
}

// AddWarning adds a warning of the gateway. It replaces control characters and shortens the text.
func AddWarning(h http.Header, text string) {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxWarning {
		text = strings.ToValidUTF8(text[:maxWarning], "") + "..."
	}
	if v, err := utilnet.NewWarningHeader(299, "clusterpass", text); err == nil {
		h.Add("Warning", v)
	}
}

// PassWarnings adds the members' own warnings, each once. A warning that mentions clusters gets the name of its member,
// so that it does not read as the gateway's.
func PassWarnings(h http.Header, answers []*Answer) {
	for _, a := range answers {
		sent, _ := utilnet.ParseWarningHeaders(a.Response.Header["Warning"]) // malformed ones are left out
		for _, w := range sent {
			if strings.Contains(strings.ToLower(w.Text), "cluster") {
				w.Text = fmt.Sprintf("cluster %q warns: %s", a.Name, w.Text)
			}
			v, err := utilnet.NewWarningHeader(w.Code, w.Agent, w.Text)
			if err == nil && len(v) <= 2*maxWarning && len(h["Warning"]) < MaxWarnings &&
				!slices.Contains(h["Warning"], v) {
				h.Add("Warning", v)
			}
		}
	}
}
