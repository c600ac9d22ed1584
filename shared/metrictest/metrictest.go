// Package metrictest reads the value of one metric in a test.
package metrictest

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Value returns the value of the first series that has all labels, each as name=value, or 0. That of a histogram is its
// number of observations.
func Value(tb testing.TB, from prometheus.Gatherer, name string, labels ...string) float64 {
	tb.Helper()
	families, err := from.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetName()+"="+l.GetValue())
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(have, l) }) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// Gauge returns the value of a gauge that has no labels. It fails the test if there is no such metric.
func Gauge(tb testing.TB, from prometheus.Gatherer, name string) int {
	tb.Helper()
	families, err := from.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	tb.Fatalf("no metric %s", name)
	return 0
}
