// The views of the page. Each module has a function that makes its view of `page`: `ended(why)` ends
// the session, `move(guest, target)` opens the migration dialog. A view has an `element`,
// `draw(hosts, words)`, which is called when the cloud or the search changes, and optionally
// `show(parts, query)` and `leave()`, which are called when the location leads to it or away.

import { guest_view } from "./guest.js";
import { guests_view } from "./guests.js";
import { health_view } from "./health.js";
import { host_view } from "./host.js";
import { hosts_view } from "./hosts.js";
import { jobs_view } from "./jobs.js";

/** label: in the navigation, with its group. of: the view whose link is current instead. */
export const VIEWS = {
  hosts: { label: "Hosts", group: "Cloud", make: hosts_view },
  host: { label: "Host", of: "hosts", make: host_view },
  guests: { label: "Guests", group: "Cloud", make: guests_view },
  guest: { label: "Guest", of: "guests", make: guest_view },
  jobs: { label: "Jobs", group: "Operation", make: jobs_view },
  health: { label: "Health", group: "Operation", make: health_view },
};
