package forward

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/status"
)

// impersonationRefused closes the response and returns an error if the member does not let the gateway's credential
// impersonate the caller. kube-apiserver's own error names neither the caller nor, since Kubernetes 1.36, the missing
// right. An application behind a proxy subresource could send the same, so those responses pass unchanged.
func impersonationRefused(resp *http.Response, c *Call) error {
	if resp.StatusCode != http.StatusForbidden || c.Member.Cluster.Mode() != v1alpha1.Impersonate ||
		isProxied(c.Resource) {
		return nil
	}
	st := peekStatus(resp)
	if st == nil || st.Reason != metav1.StatusReasonForbidden || !strings.Contains(st.Message, " cannot impersonate") {
		return nil
	}
	_ = resp.Body.Close()
	name, groups := c.Member.Cluster.Name, impersonatedGroups(c.User)
	return status.New(status.CannotImpersonate, name,
		"cluster %q does not let the gateway impersonate user %q of the groups %s: %s; call it as a user of another group "+
			"(--as, --as-group)%s", name, c.User.Name, shownGroups(groups), st.Message, joinAdvice(name, groups))
}

// joinAdvice names the command that lets the gateway impersonate the groups. It never suggests to make the gateway's
// account cluster-admin.
func joinAdvice(cluster string, groups []string) string {
	if slices.Contains(groups, access.Masters) {
		return fmt.Sprintf("; the cluster was joined for other groups, and whoever may impersonate %s is cluster-admin",
			access.Masters)
	}
	return fmt.Sprintf(", or let its administrator run: clusterpass cluster join %s --context CONTEXT --replace %s",
		cluster, groupOptions(groups))
}

// shownGroups quotes the first groups. A caller of an identity provider may have hundreds.
func shownGroups(groups []string) string {
	if more := len(groups) - maxShownGroups; more > 0 {
		return fmt.Sprintf("%q and %d more", groups[:maxShownGroups], more)
	}
	return fmt.Sprintf("%q", groups)
}

const maxShownGroups = 8

// plainGroup matches groups that no shell interprets. A caller may have invented the name of a group.
var plainGroup = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:._/@-]*$`)
})

func groupOptions(groups []string) string {
	needsQuotes := func(group string) bool { return !plainGroup().MatchString(group) }
	if len(groups) == 0 || len(groups) > maxShownGroups || slices.ContainsFunc(groups, needsQuotes) {
		return "--group GROUP, once for each group of its callers"
	}
	return "--group " + strings.Join(groups, " --group ") + ", and --group for the groups of its other callers"
}
