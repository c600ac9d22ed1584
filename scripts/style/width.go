package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxColumns is the maximum width of prose in Markdown.
const maxColumns = 100

// wide matches lines of Markdown that cannot be wrapped: rows of tables, images, definitions of links, and text without
// a space.
var wide = regexp.MustCompile(`^\s*(\||!\[|\[[^\]]*\]: |([-*]|\d+\.)?\s*\S+$)`)

// longLines returns the numbers of the lines of prose with more than maxColumns characters.
func longLines(source []byte) (numbers []int) {
	number, isCode := 0, false
	for line := range strings.Lines(string(source)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			isCode = !isCode
		}
		if !isCode && utf8.RuneCountInString(line) > maxColumns && !wide.MatchString(line) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}
