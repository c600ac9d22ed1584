package cursor

// ClientForm returns the resourceVersion for clients. It is the member's own if the request covers only one cluster,
// otherwise the composite.
func (v Version) ClientForm(single bool) string {
	if single {
		for _, own := range v {
			return own
		}
	}
	return v.String()
}
