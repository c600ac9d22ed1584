package cursor

// ClientForm returns the resourceVersion for clients: the member's own if single is set, otherwise the composite.
func (v Version) ClientForm(single bool) string {
	if single {
		for _, own := range v {
			return own
		}
	}
	return v.String()
}
