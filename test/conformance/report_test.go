package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// TestReportOfE2E uses a shortened report of e2e.test.
func TestReportOfE2E(t *testing.T) {
	r, err := readReport("testdata/junit.xml")
	if err != nil {
		t.Fatal(err)
	}
	if want := "Suite Timeout Elapsed"; r.incomplete != want {
		t.Errorf("incomplete is %q, want %q", r.incomplete, want)
	}
	for name, s := range r.specs {
		s.duration = s.duration.Truncate(10 * time.Millisecond)
		r.specs[name] = s
	}
	want := map[string]spec{
		"[sig-api-machinery] ResourceQuota should apply changes to a resourcequota status [Conformance]": {
			failed, 33180 * time.Millisecond, "A suite timeout occurred",
		},
		"[sig-api-machinery] Watchers should be able to restart watching from the last resource version " +
			"observed by the previous watch [Conformance]": {passed, 100 * time.Millisecond, ""},
		"[sig-api-machinery] Watchers should be able to start watching from a specific resource version [Conformance]": {
			passed, 390 * time.Millisecond, "",
		},
		"[sig-api-machinery] Watchers should observe add, update, and delete watch notifications " +
			"on configmaps [Conformance]": {passed, 20220 * time.Millisecond, ""},
		"[sig-cli] Kubectl client Proxy server should support proxy with --port 0 [Conformance]": {
			failed, 250 * time.Millisecond, "Expected at least one supported apiversion, got",
		},
	}
	if !maps.Equal(r.specs, want) {
		t.Errorf("got %v\nwant %v", r.specs, want)
	}
}

// TestReportOfOneCase covers states that the sample lacks.
func TestReportOfOneCase(t *testing.T) {
	tests := map[string]struct {
		testcase       string
		want           spec // of [It] a; none if it has no result
		wantIncomplete string
		wantErr        string
	}{
		"skipped by itself": {
			testcase: `<testcase name="[It] a" status="skipped"><skipped message="skipped - needs two nodes"/></testcase>`,
			want:     spec{result: skipped, reason: "needs two nodes"},
		},
		"not selected": {testcase: `<testcase name="[It] a" status="skipped"><skipped message="skipped"/></testcase>`},
		"panicked": {
			testcase: `<testcase name="[It] a" status="panicked"><error>&#xA;[PANICKED] Test Panicked&#xA;In</error></testcase>`,
			want:     spec{result: failed, reason: "Test Panicked"},
		},
		"set up failed": {
			testcase: `<testcase name="[SynchronizedBeforeSuite]" status="failed">` +
				`<failure>[FAILED] no nodes</failure></testcase>`,
			wantIncomplete: "[SynchronizedBeforeSuite]: no nodes",
		},
		"unknown status": {
			testcase: `<testcase name="[It] a" status="new"/>`,
			wantErr:  `unknown status "new" of "a"`,
		},
		"two results": {
			testcase: `<testcase name="[It] a" status="passed"/><testcase name="[It] a" status="failed"/>`,
			wantErr:  `two results of "a"`,
		},
		"cut off": {testcase: `<testcase name="[It] a`, wantErr: "read the JUnit report"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := parseReport(strings.NewReader(`<testsuites><testsuite>` + test.testcase + `</testsuite></testsuites>`))
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got %v, want an error with %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.specs["a"] != test.want || r.incomplete != test.wantIncomplete {
				t.Errorf("got %+v, %q; want %+v, %q", r.specs["a"], r.incomplete, test.want, test.wantIncomplete)
			}
		})
	}
}
