import { mount } from "./view.js";

mount(document.getElementById("fingerprint"));
