package stores

import (
	"strings"
	"testing"
)

func TestAddress(t *testing.T) {
	for v, want := range map[string]Address{
		"dir:/var/lib/a,key=b:c": {Kind: "dir", Where: "/var/lib/a,key=b:c"},
		"kubernetes:clusterpass,kubeconfig=/etc/hub,context=hub": {
			Kind: "kubernetes", Where: "clusterpass", Kubeconfig: "/etc/hub", Context: "hub",
		},
		"aws:clusterpass": {Kind: "aws", Where: "clusterpass"},
		"aws:clusterpass,key=arn:aws:kms:eu-west-1:111122223333:key/1": {
			Kind: "aws", Where: "clusterpass", Key: "arn:aws:kms:eu-west-1:111122223333:key/1",
		},
	} {
		var a Address
		if err := a.Decode(v); err != nil || a != want || a.String() != v {
			t.Errorf("%s: %+v, %s, %v", v, a, a, err)
		}
	}
	for _, v := range []string{
		"", "aws", "aws:", ":a", "aws:a,b", "aws:a,key=", "aws:a,context=b", "kubernetes:a,key=b",
		"kubernetes:a,context=b,context=c",
	} {
		var a Address
		if err := a.Decode(v); err == nil {
			t.Errorf("%q is taken for %+v", v, a)
		}
	}
}

// TestValidPrefix fails if a prefix is accepted that AWS refuses in the name of a table.
func TestValidPrefix(t *testing.T) {
	for prefix, want := range map[string]bool{
		"a": true, "0": true, "clusterpass-prod-": true, strings.Repeat("a", maxPrefix): true,
		"": false, "-a": false, "A": false, "a/b": false, "a.b": false, "a_b": false, "ä": false, "\xff": false,
		strings.Repeat("a", maxPrefix+1): false,
	} {
		if got := validPrefix(prefix); got != want {
			t.Errorf("%q: %t, want %t", prefix, got, want)
		}
	}
}

// TestOpenExplainsPrefix: the error must name the rule that the user's prefix breaks.
func TestOpenExplainsPrefix(t *testing.T) {
	_, err := Open(t.Context(), Address{Kind: "aws", Where: "-x"})
	if err == nil || !strings.Contains(err.Error(), "does not start with '-'") {
		t.Errorf("aws:-x: %v", err)
	}
}
