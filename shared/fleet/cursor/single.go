package cursor

// ClientForm returns a version as clients see it: the member's own if the request covers one cluster alone, otherwise
// the composite.
func (v Version) ClientForm(single bool) string {
	if single {
		for _, own := range v {
			return own
		}
	}
	return v.String()
}
