// The views of the page. Each module has a function that makes its view of `page`: `ended(why)` ends
// the session, `move(guest, target)` opens the migration dialog. A view has an `element`,
// `draw(hosts, words)`, which is called when the cloud or the search changes, and optionally
// `show(parts, query)` and `leave()`, which are called when the location leads to it or away.

import { deploy_view } from "./deploy.js";
import { deployments_view } from "./deployments.js";
import { guest_view } from "./guest.js";
import { guests_view } from "./guests.js";
import { health_view } from "./health.js";
import { host_view } from "./host.js";
import { ha_view } from "./ha.js";
import { hosts_view } from "./hosts.js";
import { images_view } from "./images.js";
import { jobs_view } from "./jobs.js";
import { maintenance_view } from "./maintenance.js";
import { networks_view } from "./networks.js";
import { rebalance_view } from "./rebalance.js";
import { storage_view } from "./storage.js";

/** label: in the navigation, with its group. of: the view whose link is current instead. verb: who may
 * not call it has no link to the view. */
export const VIEWS = {
  hosts: { label: "Hosts", group: "Cloud", make: hosts_view },
  host: { label: "Host", of: "hosts", make: host_view },
  guests: { label: "Guests", group: "Cloud", make: guests_view },
  guest: { label: "Guest", of: "guests", make: guest_view },
  deploy: { label: "Deploy", group: "Cloud", make: deploy_view, verb: "init" },
  deployments: { label: "Deployments", group: "Cloud", make: deployments_view, verb: "deployments" },
  images: { label: "Images", group: "Resources", make: images_view, verb: "images" },
  networks: { label: "Networks", group: "Resources", make: networks_view, verb: "networks" },
  storage: { label: "Storage", group: "Resources", make: storage_view, verb: "pools" },
  jobs: { label: "Jobs", group: "Operation", make: jobs_view },
  health: { label: "Health", group: "Operation", make: health_view },
  ha: { label: "High availability", group: "Operation", make: ha_view, verb: "ha_status" },
  maintenance: { label: "Maintenance", group: "Operation", make: maintenance_view, verb: "maintenance" },
  rebalance: { label: "Rebalance", group: "Operation", make: rebalance_view, verb: "rebalance" },
};
