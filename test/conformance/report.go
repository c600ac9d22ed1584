package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

type result string

const (
	passed  result = "passed"
	failed  result = "failed"
	skipped result = "skipped" // the spec itself decided that it cannot run here
	notRun  result = "not run"
)

type spec struct {
	result   result
	duration time.Duration
	reason   string // why the spec did not pass, in one line
}

type report struct {
	target   string
	duration time.Duration
	specs    map[string]spec // by full name
	// incomplete is the reason why e2e.test did not run every spec that it selected; "" if it did.
	incomplete string
}

// junit is the part of ginkgo's JUnit report that this program reads.
type junit struct {
	Suites []struct {
		Properties []struct {
			Name  string `xml:"name,attr"`
			Value string `xml:"value,attr"`
		} `xml:"properties>property"`
		Cases []testcase `xml:"testcase"`
	} `xml:"testsuite"`
}

type testcase struct {
	Name    string  `xml:"name,attr"`
	Status  string  `xml:"status,attr"`
	Seconds float64 `xml:"time,attr"`
	Skipped *struct {
		Message string `xml:"message,attr"`
	} `xml:"skipped"`
	Failure string `xml:"failure"`
	Error   string `xml:"error"`
}

func readReport(path string) (*report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseReport(f)
}

// parseReport omits specs that the command line did not select.
func parseReport(in io.Reader) (*report, error) {
	var doc junit
	if err := xml.NewDecoder(in).Decode(&doc); err != nil {
		return nil, fmt.Errorf("read the JUnit report: %w", err)
	}
	r := &report{specs: map[string]spec{}}
	for _, s := range doc.Suites {
		for _, p := range s.Properties {
			// A suite whose specs fail has no special reason. One that timed out, or whose setup failed, has.
			if p.Name == "SpecialSuiteFailureReason" && p.Value != "" {
				r.incomplete = p.Value
			}
		}
		for _, c := range s.Cases {
			if err := r.add(c); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

func (r *report) add(c testcase) error {
	node, name, _ := strings.Cut(c.Name, " ")
	if node != "[It]" { // set up and clean up of the suite
		if c.Status != string(passed) && c.Status != string(skipped) {
			r.incomplete = c.Name + ": " + firstLine(c.Failure+c.Error)
		}
		return nil
	}
	s := spec{duration: time.Duration(c.Seconds * float64(time.Second))}
	switch c.Status {
	case "passed":
		s.result = passed
	case "skipped", "pending":
		if c.Skipped == nil || !strings.HasPrefix(c.Skipped.Message, "skipped - ") {
			return nil // not selected, or never begun: then incomplete is set
		}
		s.result, s.reason = skipped, firstLine(strings.TrimPrefix(c.Skipped.Message, "skipped - "))
	case "failed", "panicked", "timedout", "interrupted", "aborted":
		s.result, s.reason = failed, firstLine(c.Failure+c.Error)
	default:
		return fmt.Errorf("read the JUnit report: unknown status %q of %q", c.Status, name)
	}
	if _, twice := r.specs[name]; twice {
		return fmt.Errorf("read the JUnit report: two results of %q", name)
	}
	r.specs[name] = s
	return nil
}

// stateTag is ginkgo's text before the reason of a failure.
var stateTag = regexp.MustCompile(`^\[[A-Z]+\] `)

// firstLine returns the first line of text that is not empty, without ginkgo's [FAILED] before it.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = stateTag.ReplaceAllString(strings.TrimSpace(line), ""); line != "" {
			return line
		}
	}
	return ""
}
