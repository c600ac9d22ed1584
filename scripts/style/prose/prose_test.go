package prose

import (
	"fmt"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSentencesEndAtPeriods(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"two sentences":                  {"One ends. Two ends.", []string{"One ends.", "Two ends."}},
		"no period at the end":           {"One ends. Two", []string{"One ends.", "Two"}},
		"questions and exclamations":     {"Why? So! Yes", []string{"Why?", "So!", "Yes"}},
		"a lower-case identifier starts": {"One ends. list returns.", []string{"One ends.", "list returns."}},
		"e.g. and i.e. end nothing":      {"Some, e.g. Pods, (i.e. All).", []string{"Some, e.g. Pods, (i.e. All)."}},
		"etc. within a sentence":         {"Pods, nodes etc. are listed.", []string{"Pods, nodes etc. are listed."}},
		"etc. at the end":                {"Pods, nodes etc. They are.", []string{"Pods, nodes etc.", "They are."}},
		"names with dots":                {"In go.mod or status.Error. End.", []string{"In go.mod or status.Error.", "End."}},
		"a file name at the end":         {"Read go.mod. End.", []string{"Read go.mod.", "End."}},
		"versions":                       {"Use v1.69.0 or 1.26. End.", []string{"Use v1.69.0 or 1.26.", "End."}},
		"a period in brackets":           {"(One ends.) Two.", []string{"(One ends.)", "Two."}},
		"an ellipsis within a sentence":  {"One, two, … and all. End.", []string{"One, two, … and all.", "End."}},
		"an ellipsis at the end":         {"One, two... End.", []string{"One, two...", "End."}},
		"a colon within a sentence":      {"It has one: two.", []string{"It has one: two."}},
		"nothing":                        {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range sentences(Block{Lines: []Line{{1, c.text}}}) {
				got = append(got, s.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCheckFindsEachRule(t *testing.T) {
	words := func(n int) string { return strings.Repeat("pod ", n-1) + "ends." }
	for name, c := range map[string]struct {
		lines string // from line 1
		want  []Finding
	}{
		"25 words":            {words(25), nil},
		"26 words":            {words(26), []Finding{{1, LongSentence, "26 words: " + words(26)}}},
		"dashes are no words": {"a — b - " + words(23), nil},
		"a sentence of two lines": {
			"One. pod\n" + words(25),
			[]Finding{{1, LongSentence, "26 words: pod " + words(25)}},
		},
		"banned words": {
			"It takes\n(Nobody's) one-way turn—told.",
			[]Finding{
				{1, BannedWord, "takes"},
				{2, BannedWord, "(Nobody's)"}, {2, BannedWord, "one-way"}, {2, BannedWord, "turn"}, {2, BannedWord, "told."},
			},
		},
		"parts of other words":     {"It always returns a password, an example and a threshold.", nil},
		"names of code":            {"See `take`, x.take, take() and takeIn, a/way and https://x/hold.", nil},
		"a clause as subject":      {"One. What a member returns.", []Finding{{1, ClauseSubject, "What a member returns."}}},
		"a clause in lower case":   {"whoever calls", []Finding{{1, ClauseSubject, "whoever calls"}}},
		"a clause in a quote":      {"(Of the pods, two.)", []Finding{{1, ClauseSubject, "(Of the pods, two.)"}}},
		"a question":               {"What does a member return?", nil},
		"a word that starts alike": {"Whatever is. Of all.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var block Block
			for i, line := range strings.Split(c.lines, "\n") {
				block.Lines = append(block.Lines, Line{i + 1, line})
			}
			if got := Check(block); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	if got := Check(Block{Lines: []Line{{1, "What a member returns"}}, Title: true}); got != nil {
		t.Errorf("a title: got %+v", got)
	}
}

func layout(blocks []Block) []string {
	var texts []string
	for _, b := range blocks {
		var lines []string
		for _, l := range b.Lines {
			lines = append(lines, fmt.Sprintf("%d: %s", l.Number, l.Text))
		}
		text := strings.Join(lines, " | ")
		if b.Title {
			text = "# " + text
		}
		texts = append(texts, text)
	}
	return texts
}

func TestMarkdownHasProseWithoutCode(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		want   []string
	}{
		"paragraphs":     {"one\ntwo\n\nthree\n", []string{"1: one | 2: two", "4: three"}},
		"headings":       {"# Title\n\ntext\n", []string{"# 1: Title", "3: text"}},
		"fenced code":    {"a\n```sh\ntake\n```\nb\n", []string{"1: a", "5: b"}},
		"indented code":  {"a\n\n    take\n\nb\n", []string{"1: a", "5: b"}},
		"code spans":     {"use `take in`: `it`s\n", []string{"1: use `code`: `code`s"}},
		"a span's lines": {"use `a\nb` now\nend\n", []string{"1: use `code` | 2:  now | 3: end"}},
		"links":          {"see [the docs](take.md) and <https://take.x>\n", []string{"1: see the docs and `code`"}},
		"lists":          {"- one\n  more\n- two\n  1. three\n", []string{"1: one | 2: more", "3: two", "4: three"}},
		"tables":         {"| a | b |\n|---|---|\n| c `d` | e |\n", []string{"# 1: a", "# 1: b", "3: c `code`", "3: e"}},
		"emphasis":       {"a **bold *and* more** end\n", []string{"1: a bold and more end"}},
		"HTML":           {"<!-- take -->\n\na <b>b</b>\n", []string{"3: a b"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := layout(Markdown([]byte(c.source))); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCommentsHaveProseWithoutCode(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		want   []string
	}{
		"paragraphs":        {"// one\n// two\n//\n// three\npackage x", []string{"1: one | 2: two", "4: three"}},
		"trailing comments": {"package x\n\nvar a = 1 // one\n\nvar b = 1 // two\n", []string{"3: one", "5: two"}},
		"blocks":            {"/* one\n two */\npackage x", []string{"1: one | 2: two"}},
		"directives": {
			"package x\n\n// one\n//\n//go:generate take\n//nolint:lll // take\n// +k8s:take\nvar a = 1\n",
			[]string{"3: one"},
		},
		"indented code": {"// one\n//\n//\ttake it\n//\n// two\npackage x", []string{"1: one", "5: two"}},
		"a list": {
			"// one:\n//   - two\n//     more\n//   - three\n//\n// four\npackage x",
			[]string{"1: one:", "2: two | 3: more", "4: three", "6: four"},
		},
		"code after a list":   {"//   - one\n//\n// two\n//\n//\ttake\npackage x", []string{"1: one", "3: two"}},
		"a heading":           {"// # One\n//\n// two\npackage x", []string{"# 1: One", "3: two"}},
		"code within text":    {"// use `take in` here\npackage x", []string{"1: use `code` here"}},
		"strings are no text": {"package x\n\nvar a = \"// take\"\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, "x.go", c.source, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if got := layout(Comments(fset, file)); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
