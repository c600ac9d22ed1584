package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

const maxDifferences = 20

// diff describes where the JSON value got differs from want, "" if it does not. Its time is linear, however deep the
// values are nested.
func diff(want, got any) string {
	var lines []string
	differences(&lines, "", want, got)
	return strings.Join(lines, "\n")
}

func differences(lines *[]string, path string, want, got any) {
	if len(*lines) >= maxDifferences {
		return
	}
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			fieldDifferences(lines, path, w, g)
			return
		}
	case []any:
		if g, ok := got.([]any); ok && len(w) == len(g) {
			for i := range w {
				differences(lines, fmt.Sprintf("%s[%d]", path, i), w[i], g[i])
			}
			return
		}
	}
	if !reflect.DeepEqual(want, got) {
		*lines = append(*lines, fmt.Sprintf("%s:\n  - %s\n  + %s", path, show(want), show(got)))
	}
}

func fieldDifferences(lines *[]string, path string, want, got map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if g, ok := got[k]; ok {
			differences(lines, fmt.Sprintf("%s.%q", path, k), want[k], g)
		} else {
			*lines = append(*lines, fmt.Sprintf("%s.%q is missing:\n  - %s", path, k, show(want[k])))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[k]; !ok {
			*lines = append(*lines, fmt.Sprintf("%s.%q is too much:\n  + %s", path, k, show(got[k])))
		}
	}
}

func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return head(text)
}
