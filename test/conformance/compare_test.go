package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func reportOf(target string, pass, fail []string) *report {
	r := &report{target: target, duration: time.Minute, specs: map[string]spec{}}
	for _, name := range pass {
		r.specs[name] = spec{result: passed}
	}
	for _, name := range fail {
		r.specs[name] = spec{result: failed, reason: "why | it failed"}
	}
	return r
}

// TestVerdict: a regression of the gateway, or a run that proves nothing, must not count as success.
func TestVerdict(t *testing.T) {
	on := func(target string) func(pass string, fail ...string) *report {
		return func(pass string, fail ...string) *report { return reportOf(target, strings.Fields(pass), fail) }
	}
	direct, through := on("direct"), on("gateway")
	cut := through("a b")
	cut.incomplete = "Suite Timeout Elapsed"
	tests := map[string]struct {
		direct, gateway *report
		want            []string // texts that the error contains; none for success
		wantNot         string
	}{
		"same":                {direct: direct("a b"), gateway: through("a b")},
		"fails on both":       {direct: direct("a b", "c"), gateway: through("a b", "c")},
		"passes only through": {direct: direct("a b", "c"), gateway: through("a b c")},
		"fails only through": {
			direct: direct("a b", "c"), gateway: through("a", "b", "c"),
			want:    []string{"1 specs pass on direct, but not on gateway", "b\n    failed: why | it failed"},
			wantNot: "\n  c",
		},
		"did not run through": {direct: direct("a b"), gateway: through("a"), want: []string{"b\n    not run"}},
		"few pass directly": {
			direct: direct("a", "b"), gateway: through("a b"),
			want: []string{"only 1 specs pass on direct, fewer than 2"},
		},
		"no spec ran": {direct: direct(""), gateway: through(""), want: []string{"only 0 specs"}},
		"incomplete": {
			direct: direct("a b"), gateway: cut,
			want: []string{"gateway: the run is incomplete: Suite Timeout Elapsed"},
		},
		"several faults": {direct: direct("a"), gateway: through(""), want: []string{"only 1 specs", "a\n    not run"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := compare([]*report{test.direct, test.gateway}).verdict(2)
			if len(test.want) == 0 {
				if err != nil {
					t.Errorf("got %v, want success", err)
				}
				return
			}
			if err == nil {
				t.Fatal("got success, want an error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if test.wantNot != "" && strings.Contains(err.Error(), test.wantNot) {
				t.Errorf("error %q has %q", err, test.wantNot)
			}
		})
	}
}

func TestVerdictComparesEachTarget(t *testing.T) {
	err := compare([]*report{
		reportOf("direct", []string{"a"}, nil), reportOf("gateway", []string{"a"}, nil),
		reportOf("fleet", nil, []string{"a"}),
	}).verdict(1)
	if err == nil || !strings.Contains(err.Error(), "not on fleet") || strings.Contains(err.Error(), "not on gateway") {
		t.Errorf("got %v, want an error about the fleet alone", err)
	}
}

// TestMarkdown: the table must not hide a spec that did not pass.
func TestMarkdown(t *testing.T) {
	direct, through := reportOf("direct", []string{"a"}, []string{"b"}), reportOf("gateway", []string{"a"}, nil)
	got := compare([]*report{direct, through}).markdown()
	want := `| target | specs | passed | failed | skipped | not run | time |
|---|---|---|---|---|---|---|
| direct | 2 | 1 | 1 | 0 | 0 | 1m0s |
| gateway | 2 | 1 | 0 | 0 | 1 | 1m0s |

| spec | direct | gateway | reason |
|---|---|---|---|
| b | failed | not run | why \| it failed |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestProgressShowsEachSpec(t *testing.T) {
	log, err := os.ReadFile("testdata/e2e.log")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"    0s  direct     1/88  passed   [sig-api-machinery] AggregatedDiscovery should support raw aggregated discovery " +
			"endpoint Accept headers [Conformance]",
		"    0s  direct     2/88  failed   [sig-cli] Kubectl client Proxy server should support proxy with --port 0 " +
			"[Conformance]",
	}
	for _, size := range []int{1, 7, len(log)} {
		var out strings.Builder
		w := &specLines{progress: &progress{out: &out, start: time.Now()}, target: "direct"}
		for part := range slices.Chunk(log, size) {
			if n, err := w.Write(part); err != nil || n != len(part) {
				t.Fatalf("Write returned %d, %v", n, err)
			}
		}
		if got := strings.TrimSpace(out.String()); got != strings.TrimSpace(strings.Join(want, "\n")) {
			t.Errorf("in parts of %d bytes: got\n%s\nwant\n%s", size, got, strings.Join(want, "\n"))
		}
	}
}
