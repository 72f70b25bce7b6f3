// Package text makes foreign text fit to be shown.
package text

import (
	"strings"
	"unicode"
)

const maxRunes = 500

// OneLine replaces unprintable characters by spaces and shortens the text.
func OneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > maxRunes {
		text = string(runes[:maxRunes]) + "..."
	}
	return text
}
