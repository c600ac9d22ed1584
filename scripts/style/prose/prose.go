// Package prose finds sentences that break the project's language rules. [Markdown], [Comments] and [LineComments]
// return the prose of a file as blocks, and [Check] returns the findings of one block.
//
//   - LongSentence: a sentence has more than 25 parts between spaces. A code span counts as one.
//   - BannedWord: an expression on the list in this file has a precise equivalent.
//   - ClauseSubject: a sentence starts with a clause. Questions and titles may.
package prose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The names of the rules.
const (
	LongSentence  = "long-sentence"
	BannedWord    = "banned-word"
	ClauseSubject = "clause-subject"
)

const maxWords = 25

// Rules returns the names of all rules.
func Rules() []string { return []string{LongSentence, BannedWord, ClauseSubject} }

// Line is a line of prose with its number in the source file.
type Line struct {
	Number int
	Text   string
}

// Block is a paragraph, a list item, a table cell or a title. A sentence never crosses blocks.
type Block struct {
	Lines []Line
	Title bool // a heading, or a cell of a table's head
}

// Finding is one place that breaks a rule.
type Finding struct {
	Line int
	Rule string
	Text string
}

const codeSpan = "`code`"

var banned = wordSet(
	"say says said saying",
	"tell tells told telling",
	"take takes took taken taking",
	"hold holds held holding",
	"way ways",
	"door doors",
	"room rooms",
	"word words",
	"turn turns turned turning",
	"perhaps nobody somebody",
)

// abbreviations end with a period that does not end a sentence.
var abbreviations = wordSet("e.g. i.e. cf. vs. resp. approx. incl. a.k.a. etc.")

var clauseSubject = regexp.MustCompile(`(?i)^["'“(*]*(what|who|whoever|that which|of a|of the|so is)\b`)

func wordSet(lists ...string) map[string]bool {
	set := map[string]bool{}
	for _, list := range lists {
		for _, word := range strings.Fields(list) {
			set[word] = true
		}
	}
	return set
}

// Check returns the findings of one block, sorted by line.
func Check(b Block) []Finding {
	var found []Finding
	for _, s := range sentences(b) {
		if n := s.wordCount(); n > maxWords {
			found = append(found, Finding{s[0].line, LongSentence, fmt.Sprintf("%d words: %s", n, s)})
		}
		if text := s.String(); !b.Title && !strings.HasSuffix(text, "?") && clauseSubject.MatchString(text) {
			found = append(found, Finding{s[0].line, ClauseSubject, text})
		}
		for _, t := range s {
			for range t.bannedWords() {
				found = append(found, Finding{t.line, BannedWord, t.text})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return a.Line - b.Line })
	return found
}

type piece struct {
	text string
	line int
}

type sentence []piece

func (s sentence) String() string {
	texts := make([]string, len(s))
	for i, t := range s {
		texts[i] = t.text
	}
	return strings.Join(texts, " ")
}

func (s sentence) wordCount() int {
	n := 0
	for _, t := range s {
		if strings.ContainsFunc(t.text, isWordRune) {
			n++
		}
	}
	return n
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

func sentences(b Block) []sentence {
	var pieces []piece
	for _, line := range b.Lines {
		for _, text := range strings.Fields(strings.ReplaceAll(line.Text, "—", " — ")) {
			pieces = append(pieces, piece{text, line.Number})
		}
	}
	var all []sentence
	start := 0
	for i := range pieces {
		if i+1 == len(pieces) || endsSentence(pieces[i].text, pieces[i+1].text) {
			all = append(all, pieces[start:i+1])
			start = i + 1
		}
	}
	return all
}

func endsSentence(text, next string) bool {
	text = strings.TrimLeft(strings.TrimRight(text, `)]"'*_”’`), `(["'*_“‘`)
	last, size := utf8.DecodeLastRuneInString(text)
	if len(text) == size {
		return false // punctuation alone, or nothing
	}
	first, _ := utf8.DecodeRuneInString(strings.TrimLeft(next, `(["'*_“‘`))
	switch {
	case last == '!' || last == '?':
		return true
	case last == '…' || strings.HasSuffix(text, "..") || strings.EqualFold(text, "etc."):
		return unicode.IsUpper(first)
	case last == '.':
		return !abbreviations[strings.ToLower(text)]
	}
	return false
}

func (p piece) bannedWords() []string {
	text := strings.TrimFunc(p.text, func(r rune) bool { return strings.ContainsRune(`.,;:!?"'()[]*…“”‘’`, r) })
	text = strings.TrimSuffix(strings.TrimSuffix(text, "'s"), "’s")
	if isCode(text) || strings.Contains(p.text, "()") {
		return nil
	}
	var words []string
	for part := range strings.SplitSeq(strings.ToLower(text), "-") {
		if banned[part] {
			words = append(words, part)
		}
	}
	return words
}

func isCode(text string) bool {
	if strings.ContainsAny(text, "`_/\\.=<>{}()[]@#$:%&|+") {
		return true
	}
	afterLower := false
	for _, r := range text {
		if afterLower && unicode.IsUpper(r) {
			return true
		}
		afterLower = unicode.IsLower(r)
	}
	return false
}
